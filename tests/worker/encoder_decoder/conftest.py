"""A worker that serves a module's `reference`, an encoder-decoder of text."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.worker.encoder_decoder.checkpoints import SourceReference
from tests.worker.server.process.worker_process import WorkerProcess


@pytest.fixture(scope="module")
def worker(reference: SourceReference) -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False,
        model=str(reference.path),
        served_model_name="seq2seq",
        threads=1,
        cpu_kernels="off",
        page_size=4,
        max_total_tokens=512,
    ) as worker:
        yield worker


@pytest.fixture
async def http(worker: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(worker.url) as http:
        yield http
