"""Models whose pool holds latents: its bytes, ranks, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pando_worker.attention.kv_pool import kv_cell_bytes
from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.loading.building import build_model
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import prompt
from tests.worker.model.conftest import References
from tests.worker.model.paged import CPU, BareModel, Row


def test_a_token_takes_the_bytes_of_its_latents_on_every_rank(reference_of: References) -> None:
    """Keys and values of all heads would be 3.6 times as many."""
    config = read_config(reference_of("deepseek-v3").path)
    for size in (1, 2, 4):
        model = build_model(config, torch.float32, CPU, ParallelGroup(0, size))
        layers = model.attention_layers
        assert kv_cell_bytes(layers, torch.float32) == 2 * (16 + 4) * 4
        assert [(layer.kv_heads, layer.heads) for layer in layers] == [(1, 4 // size)] * 2


def test_layers_that_predict_further_tokens_are_left_out(
    reference_of: References, tmp_path: Path
) -> None:
    """DeepSeek-V3's checkpoint has one behind its last layer. Others stay unknown tensors."""
    reference = reference_of("deepseek-v3")
    tensors = load_file(reference.path / "model.safetensors")
    more = {
        name.replace("layers.1.", "layers.2."): tensor.clone()
        for name, tensor in tensors.items()
        if "layers.1." in name
    } | {"model.layers.2.eh_proj.weight": torch.zeros(32, 64)}
    fields = json.loads((reference.path / "config.json").read_text())
    for count in (1, 0):
        path = tmp_path / str(count)
        path.mkdir()
        save_file(tensors | more, path / "model.safetensors", metadata={"format": "pt"})
        fields["num_nextn_predict_layers"] = count
        (path / "config.json").write_text(json.dumps(fields))
    tokens = prompt(20)
    found = BareModel(tmp_path / "1").run([Row(tokens)])
    torch.testing.assert_close(found, reference.all_logits(tokens), atol=2e-4, rtol=2e-4)
    with pytest.raises(BrokenCheckpoint, match=r"layers\.2\."):
        BareModel(tmp_path / "0")


def test_adapters_are_refused(reference_of: References) -> None:
    settings = WorkerSettings(
        model=str(reference_of("deepseek-v2").path), max_loras=2, max_total_tokens=256, threads=1
    )
    with pytest.raises(UnsupportedModel, match="attention is latent, and no adapters"):
        TorchModelRunner(settings)
