"""A fleet of SmolLM2 with two workers, which all clients share."""

import signal
from collections.abc import Iterator

import pytest

from tests.e2e.up_process import UpProcess


@pytest.fixture(scope="session")
def smollm2() -> Iterator[UpProcess]:
    with UpProcess("--model", "smollm2") as process:
        yield process.wait_ready()
        process.send(signal.SIGINT)
        assert process.wait_end() == 0, process.output
