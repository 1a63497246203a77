"""One thread: all shapes here are tiny, and threads only wait for each other."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
