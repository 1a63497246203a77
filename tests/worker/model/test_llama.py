"""The model and its attention compared with transformers, on tiny random Llamas in float32."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.settings.compute import DType
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import Paged, Row

# Scaled ones were "trained" on 16 positions, so that the tests' prompts exceed them.
ORIGINAL = {"original_max_position_embeddings": 16, "rope_theta": 100.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0} | ORIGINAL
SHAPES: dict[str, dict[str, Any]] = {
    "grouped-query": {},
    "multi-head": {"num_key_value_heads": 4},
    "multi-query": {"num_key_value_heads": 1},
    "tied embeddings": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "wide heads": {"head_dim": 24},
    "norm epsilon": {"rms_norm_eps": 0.1},
    "rope theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
    "rope linear": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}},
    "rope llama3": {"head_dim": 32, "rope_parameters": LLAMA3 | ORIGINAL},
    "rope yarn": {"head_dim": 32, "rope_parameters": YARN},
    "rope yarn, betas": {
        "head_dim": 32,
        "rope_parameters": YARN | {"beta_fast": 4.0, "beta_slow": 0.5, "truncate": False},
    },
    "rope yarn, factor given": {"rope_parameters": YARN | {"attention_factor": 1.4}},
    "rope yarn, mscale": {"rope_parameters": YARN | {"mscale": 2.0, "mscale_all_dim": 0.5}},
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_logits_equal_those_of_transformers(tmp_path: Path, shape: dict[str, Any]) -> None:
    reference, row = Reference(tmp_path, **shape), Row(prompt(40))
    paged = Paged(tmp_path)
    torch.testing.assert_close(
        paged.logits([row])[0], reference.logits(row.tokens), atol=1e-4, rtol=1e-4
    )
    row.tokens.append(5)
    torch.testing.assert_close(
        paged.logits([row])[0], reference.logits(row.tokens), atol=1e-4, rtol=1e-4
    )


def test_long_and_short_rows_decode_together(reference: Reference) -> None:
    """Long enough for several query blocks and several groups of decodes."""
    paged = Paged(reference.path)
    rows = [Row(prompt(length, seed=length)) for length in (3, 700, 301, 40, 290)]
    for row in rows:
        paged.logits([row])
        row.tokens.append(8)
    for row, logits in zip(rows, paged.logits(rows), strict=True):
        torch.testing.assert_close(logits, reference.logits(row.tokens), atol=1e-4, rtol=1e-4)


def test_wide_rows_decode_in_several_groups_of_a_length(tmp_path: Path) -> None:
    """A token's keys take 16 KiB here, so a group holds only a few rows of this length."""
    heads: dict[str, Any] = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256}
    reference = Reference(tmp_path, num_hidden_layers=1, **heads)
    paged = Paged(tmp_path)
    rows = [Row(prompt(300 + length, seed=length)) for length in range(4)]
    paged.logits(rows)
    for row in rows:
        row.tokens.append(8)
    for row, logits in zip(rows, paged.logits(rows), strict=True):
        torch.testing.assert_close(logits, reference.logits(row.tokens), atol=1e-4, rtol=1e-4)


def test_a_row_that_is_not_finite_yields_minus_one_and_harms_no_other(tmp_path: Path) -> None:
    reference = Reference(tmp_path)
    with torch.no_grad():
        reference.model.model.embed_tokens.weight[7] = torch.inf
    reference.model.save_pretrained(tmp_path)
    paged, rows = Paged(tmp_path), [Row([1, 2, 3]), Row([4, 7]), Row([6])]
    expected = [reference.greedy(rows[0].tokens, 2), reference.greedy(rows[2].tokens, 2)]
    assert [rows[0].tokens[3:], rows[2].tokens[1:]] == [[], []]
    assert paged.step(rows, chunk=100)[1] == -1
    rows[1].tokens[-1] = 6
    assert paged.step(rows, chunk=100)[1] == -1
    assert [rows[0].tokens[3:], rows[2].tokens[1:]] == expected


def test_half_precision_stays_close(tmp_path: Path) -> None:
    reference, row = Reference(tmp_path, dtype=torch.bfloat16), Row(prompt(30))
    expected = reference.logits(row.tokens)
    for dtype, tolerance in ((DType.FLOAT32, 1e-5), (DType.FLOAT16, 0.01), (DType.BFLOAT16, 0.08)):
        logits = Paged(tmp_path, dtype=dtype).logits([Row(row.tokens)])[0]
        assert (logits - expected).norm() < tolerance * expected.norm(), dtype
