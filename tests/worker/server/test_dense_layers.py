"""Layers behind the pooling, as sentence-transformers saves them, against torch's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.server.dense_layers import UnsupportedLayerError, read_dense_layer

TORCHS = {
    "torch.nn.modules.activation.Tanh": torch.nn.Tanh(),
    "torch.nn.modules.linear.Identity": torch.nn.Identity(),
    "torch.nn.modules.activation.ReLU": torch.nn.ReLU(),
    "torch.nn.modules.activation.Sigmoid": torch.nn.Sigmoid(),
}


def save(folder: Path, *, dtype: torch.dtype = torch.float32, **config: Any) -> torch.nn.Linear:
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 4, bias=config.get("bias", True)).to(dtype)
    # Another tensor before it: the layer's do not begin the file.
    tensors = {"a": torch.ones(3), **{f"linear.{k}": v for k, v in layer.state_dict().items()}}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps({"in_features": 6, "out_features": 4, "bias": True, **config})
    )
    return layer.float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", TORCHS)
def test_a_layer_computes_what_torch_computes(
    tmp_path: Path, activation: str, bias: bool, dtype: torch.dtype
) -> None:
    reference = save(tmp_path, activation_function=activation, bias=bias, dtype=dtype)
    layer = read_dense_layer(tmp_path)
    vector = 100 * torch.randn(6)
    with torch.no_grad():
        truth = TORCHS[activation](reference(vector)).numpy()
    found = layer.of(vector.numpy())
    assert found.dtype == np.float32 and layer.size == 4
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"activation_function": "torch.nn.modules.activation.SiLU"}, "has the activation SiLU"),
        ({"use_residual": True}, "has use_residual"),
        ({"module_input_name": "token_embeddings"}, "an input or output other than"),
        ({"module_output_name": "other"}, "an input or output other than"),
    ],
)
def test_what_is_not_computed_is_named(tmp_path: Path, config: dict[str, Any], says: str) -> None:
    save(tmp_path, **config)
    with pytest.raises(UnsupportedLayerError, match=says):
        read_dense_layer(tmp_path)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"out_features": 5}, r"linear.weight has the shape \[4, 6\]; config.json says \[5, 6\]"),
        ({"in_features": "x"}, "cannot read"),
    ],
)
def test_files_that_do_not_fit_are_broken(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    save(tmp_path, **config)
    with pytest.raises(BrokenCheckpoint, match=says):
        read_dense_layer(tmp_path)


def test_weights_that_are_cut_or_missing_are_broken(tmp_path: Path) -> None:
    save(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-80])
    with pytest.raises(BrokenCheckpoint, match=r"ends within linear\.weight"):
        read_dense_layer(tmp_path)
    weights.unlink()
    with pytest.raises(BrokenCheckpoint, match="is missing; weights in other formats"):
        read_dense_layer(tmp_path)
