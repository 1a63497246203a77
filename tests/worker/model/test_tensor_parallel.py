"""Several gloo ranks compute what one does, and what transformers does.

The ranks are started once for each size, and do all that these tests look at.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.memory.kv_pool import kv_cell_bytes
from pando_worker.models.config import read_config
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.loader import build_model, weight_bytes
from pando_worker.models.parallel import ParallelGroup
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.conftest import References
from tests.worker.model.families import FAMILIES
from tests.worker.model.paged import CPU
from tests.worker.model.ranks import Job, Report, run_ranks

PROMPTS = [prompt(length, seed=length) for length in (9, 33)]
NEW_TOKENS = 4
LARGE_VOCABULARY = 200_000


@dataclass(frozen=True)
class Trial:
    size: int
    ranks: list[Report]


@pytest.fixture(scope="module", params=[2, 4])
def trial(
    request: pytest.FixtureRequest,
    reference_of: References,
    tmp_path_factory: pytest.TempPathFactory,
) -> Trial:
    """With 4 ranks there are more ranks than KV heads, and a vocabulary that has a remainder."""
    large = Reference(
        tmp_path_factory.mktemp("large"), vocab_size=LARGE_VOCABULARY, tie_word_embeddings=True
    )
    job = Job(
        models={name: reference_of(name).path for name in FAMILIES},
        prompts=PROMPTS,
        new_tokens=NEW_TOKENS,
        large_model=large.path,
        meeting=tmp_path_factory.mktemp("meeting") / "file",
    )
    return Trial(request.param, run_ranks(job, request.param))


@pytest.mark.parametrize("name", FAMILIES)
def test_ranks_together_compute_what_transformers_does(
    trial: Trial, reference_of: References, name: str
) -> None:
    reference = reference_of(name)
    first = trial.ranks[0]
    expected = torch.cat([reference.all_logits(tokens) for tokens in PROMPTS])
    torch.testing.assert_close(torch.tensor(first.logits[name]), expected, atol=2e-4, rtol=2e-4)
    assert first.tokens[name] == [reference.greedy(tokens, NEW_TOKENS) for tokens in PROMPTS]
    for other in trial.ranks[1:]:
        assert other.logits[name] == first.logits[name], "ranks must agree to the last bit"
        assert other.tokens[name] == first.tokens[name]


def test_loading_a_share_never_holds_a_whole_tensor(trial: Trial) -> None:
    """The embedding is most of this model: its share, and not as much again, is what is used."""
    share = LARGE_VOCABULARY * 32 * 4 / trial.size
    for rank in trial.ranks:
        assert 0.9 * share < rank.peak_bytes < 2.2 * share


def test_a_dead_rank_ends_the_calls_of_the_others(trial: Trial) -> None:
    *others, last = trial.ranks
    assert last.after_a_death == "left"
    assert all(rank.after_a_death.startswith("RuntimeError") for rank in others)


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
        ({}, 3, "4 attention heads cannot be shared by 3 ranks evenly"),
        (
            {"num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 48},
            4,
            "3 key-value heads cannot be shared by 4 ranks evenly",
        ),
        ({"intermediate_size": 50}, 4, "50 intermediate_size cannot be shared by 4 ranks evenly"),
    ],
)
def test_what_cannot_be_shared_evenly_is_refused(
    tmp_path: Path, fields: dict[str, Any], size: int, message: str
) -> None:
    Reference(tmp_path, **fields)
    with pytest.raises(UnsupportedModel, match=message):
        build_model(read_config(tmp_path), torch.float32, CPU, ParallelGroup(0, size))
