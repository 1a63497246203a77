"""Compilers for the two tiny tokenizers; the model has more logits than they have tokens."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tokenizers import AddedToken, Tokenizer

from pando_worker.grammar.compiler import GrammarCompiler
from tests.worker.grammar.world import World
from tests.worker.server.text import tokenizers_for_tests as tiny

PADDING = 37


@pytest.fixture(scope="session", params=["byte_level", "sentencepiece"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    yield from _world(getattr(tiny, request.param)(), tmp_path_factory)


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from _world(tiny.byte_level(), tmp_path_factory)


def _world(tokenizer: Tokenizer, folders: pytest.TempPathFactory) -> Iterator[World]:
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    eos = [id for name in ("</s>", "<end>") if (id := tokenizer.token_to_id(name)) is not None]
    vocab_size = tokenizer.get_vocab_size() + PADDING
    folder = tiny.save(tokenizer, folders.mktemp("model"))
    with closing(GrammarCompiler(folder, vocab_size, eos)) as compiler:
        yield World(compiler, tokenizer, eos)
