"""Settings of the GPU, and the errors without one."""

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from pando_worker.cuda.device import find_device, memory_for_model
from pando_worker.models.errors import DeviceUnavailable
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@without_gpu
def test_cuda_without_a_gpu_is_refused_with_what_to_do(tmp_path: Path) -> None:
    Reference(tmp_path)
    with pytest.raises(DeviceUnavailable, match=r"device is 'cuda', but torch .*take device 'cpu'"):
        TorchModelRunner(WorkerSettings(model=str(tmp_path), device="cuda"))


def test_flashinfer_on_the_cpu_is_refused() -> None:
    with pytest.raises(ValidationError, match="attention_backend 'flashinfer' needs device cuda"):
        WorkerSettings(model="m", attention_backend="flashinfer")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_ranks_on_a_cpu_share_what_is_given_and_2_gib_where_nothing_is(ranks: int) -> None:
    cpu = find_device("cpu", 0, ranks)
    assert memory_for_model(cpu, None, ranks) * ranks == 2 * 2**30
    assert memory_for_model(cpu, 12344, ranks) * ranks == 12344
