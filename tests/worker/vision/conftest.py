"""What the tests of this folder share: models, and a client of each file's own worker."""

from collections.abc import AsyncIterator

import openai
import pytest

from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.families import FAMILIES, save_llava


@pytest.fixture(scope="session")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Seer:
    """16 tokens an image."""
    return Seer(save_llava(tmp_path_factory.mktemp("llava")))


@pytest.fixture(scope="session", params=FAMILIES)
def seer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seer:
    """Of each family."""
    return Seer(FAMILIES[request.param](tmp_path_factory.mktemp(request.param)))


@pytest.fixture
async def client(worker: WorkerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with worker.client() as client:
        yield client
