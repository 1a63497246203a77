"""The models that the tests of the engine share."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.worker.engine.served import Served, lend_tokenizer


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with closing(Served(tmp_path_factory.mktemp("llama"), page_size=4)) as served:
        yield served


@pytest.fixture(scope="session")
def with_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A model with random weights whose tokens have text, for grammars."""
    path = tmp_path_factory.mktemp("with-tokenizer")
    with closing(Served(path, page_size=4, vocab_size=lend_tokenizer(path))) as served:
        yield served


@pytest.fixture(params=[True, False], ids=["overlap", "no overlap"])
def overlap(request: pytest.FixtureRequest) -> bool:
    on: bool = request.param
    return on
