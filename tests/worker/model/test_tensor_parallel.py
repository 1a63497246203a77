"""Several gloo ranks compute the same as one rank and as transformers."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.attention.kv_pool import kv_cell_bytes
from pando_worker.models.config import read_config
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.loading.building import build_model, weight_bytes
from pando_worker.models.parallel import ParallelGroup
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.conftest import References
from tests.worker.model.families import FAMILIES
from tests.worker.model.paged import CPU
from tests.worker.model.ranks import Job, Report, run_ranks, with_whole_experts

pytestmark = pytest.mark.e2e  # starts processes

PROMPTS = [prompt(length, seed=length) for length in (9, 33)]
NEW_TOKENS = 3
LARGE_VOCABULARY = 200_000
MIXTURES = {2: frozenset({"qwen3-moe", "gpt-oss", "deepseek-v3"}), 4: frozenset({"gpt-oss"})}
"""By the number of ranks: some whose experts these can share out, in each form of checkpoints."""


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_together_compute_what_transformers_does(
    reference_of: References, tmp_path: Path, size: int
) -> None:
    """For every family, and for mixtures with whole experts on each rank, too. With 4 there are
    more ranks than KV heads, and the vocabulary leaves a remainder. The same run, because it is
    slow to start, also checks the memory for loading a rank's share, and what the others see of a
    rank that dies."""
    references = {name: reference_of(name) for name in FAMILIES}
    large = Reference(tmp_path / "large", vocab_size=LARGE_VOCABULARY, tie_word_embeddings=True)
    job = Job(
        models={name: (made.path, made.context_length) for name, made in references.items()},
        mixtures=MIXTURES[size],
        prompts=PROMPTS,
        new_tokens=NEW_TOKENS,
        large_model=large.path,
        meeting=tmp_path / "meeting",
    )
    first, *others = run_ranks(job, size)
    expected = references | {with_whole_experts(name): references[name] for name in MIXTURES[size]}
    for name, reference in expected.items():
        assert_same_as_transformers(first, name, reference)
        for other in others:
            assert other.hidden[name] == first.hidden[name], "ranks must agree to the last bit"
            assert not any(other.logits[name]), "logits are gathered on the first rank alone"
            assert other.tokens[name] == first.tokens[name]
    assert_peaks_are_shares([first, *others])
    assert all(rank.after_a_death.startswith("RuntimeError") for rank in [first, *others][:-1])


def assert_same_as_transformers(report: Report, name: str, reference: Reference) -> None:
    expected = torch.cat([reference.all_logits(tokens) for tokens in PROMPTS])
    torch.testing.assert_close(
        torch.tensor(report.logits[name]),
        expected,
        atol=2e-4,
        rtol=2e-4,
        msg=partial("{}: {}".format, name),
    )
    assert report.tokens[name] == [reference.greedy(tokens, NEW_TOKENS) for tokens in PROMPTS]


def assert_peaks_are_shares(reports: list[Report]) -> None:
    """The embedding is most of the large model; loading uses its share, without a second copy."""
    share = LARGE_VOCABULARY * 32 * 4 / len(reports)
    for rank in reports:
        assert 0.9 * share < rank.peak_bytes < 2.2 * share


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_holds_its_share_alone(tmp_path: Path, size: int) -> None:
    Reference(tmp_path, vocab_size=96, num_key_value_heads=4, tie_word_embeddings=True)
    config = read_config(tmp_path)
    whole = build_model(config, torch.float32, CPU)
    norms = 5 * 32 * 4  # bytes, on every rank
    for rank in range(size):
        model = build_model(config, torch.float32, CPU, ParallelGroup(rank, size))
        assert weight_bytes(model) == (weight_bytes(whole) - norms) // size + norms
        cells = [kv_cell_bytes(m.attention_layers, torch.float32) for m in (model, whole)]
        assert cells[0] * size == cells[1]


@pytest.mark.parametrize(
    ("fields", "size", "message"),
    [
        ({}, 3, "4 attention heads cannot be split evenly among 3 ranks"),
        (
            {"num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 48},
            4,
            "3 key-value heads cannot be split evenly among 4 ranks",
        ),
        ({"intermediate_size": 50}, 4, "50 intermediate_size cannot be split evenly among 4 ranks"),
    ],
)
def test_what_cannot_be_shared_evenly_is_refused(
    tmp_path: Path, fields: dict[str, Any], size: int, message: str
) -> None:
    Reference(tmp_path, **fields)
    with pytest.raises(UnsupportedModel, match=message):
        build_model(read_config(tmp_path), torch.float32, CPU, ParallelGroup(0, size))
