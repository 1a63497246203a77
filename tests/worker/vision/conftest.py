"""The model that the tests of this folder share."""

import pytest

from tests.worker.vision.checkpoints import Seer, save_llava


@pytest.fixture(scope="session")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Seer:
    """16 tokens an image."""
    return Seer(save_llava(tmp_path_factory.mktemp("llava")))
