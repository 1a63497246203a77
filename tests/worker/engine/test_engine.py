"""Scheduler, pools, cache and model together give the greedy tokens of transformers, for any
batches, chunks, cache hits, page sizes and retractions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pando_worker.engine.profile import StepProfile
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.world import World

SHIPPED = Path(__file__).parents[3] / "examples/models/pando-tiny"
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
    "rope_theta": 100.0,
}
SHAPES: dict[str, dict[str, Any]] = {
    "grouped-query": {},
    "multi-head, tied": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "rope llama3": {"rope_parameters": LLAMA3},
}


def engine(model: Path, *, pages: int, page_size: int, **settings: Any) -> World:
    runner = TorchModelRunner(
        WorkerSettings(
            model=str(model), page_size=page_size, max_total_tokens=pages * page_size, threads=1
        )
    )
    return World(pages=pages, page_size=page_size, runner=runner, **settings)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("page_size", [1, 16])
def test_greedy_tokens_equal_those_of_transformers(
    tmp_path: Path, shape: dict[str, Any], page_size: int
) -> None:
    reference = Reference(tmp_path, **shape)
    world = engine(
        tmp_path,
        pages=1024 // page_size,
        page_size=page_size,
        chunked_prefill_size=32,
        max_running=3,
    )
    shared = prompt(48)
    prompts = {f"r{i}": [*shared[: 16 * i], *prompt(9 + 7 * i, seed=i)] for i in range(5)}
    for turn in range(2):  # the second finds the first in the cache
        for rid, tokens in prompts.items():
            world.send(f"{rid}.{turn}", tokens, max_new_tokens=6)
        world.run()
    expected = {rid: reference.greedy(tokens, 6) for rid, tokens in prompts.items()}
    for turn in range(2):
        assert {rid: world.tokens[f"{rid}.{turn}"] for rid in prompts} == expected
    assert all(world.cached[f"{rid}.1"] > 0 for rid, tokens in prompts.items() if len(tokens) > 16)


def test_retracted_requests_finish_with_the_tokens_of_transformers(tmp_path: Path) -> None:
    reference = Reference(tmp_path)
    world = engine(tmp_path, pages=10, page_size=4, new_token_ratio=0.01)
    prompts = {f"r{i}": prompt(7, seed=i) for i in range(3)}
    for rid, tokens in prompts.items():
        world.send(rid, tokens, max_new_tokens=20)
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    for rid, tokens in prompts.items():
        assert world.tokens[rid] == reference.greedy(tokens, 20)


def test_the_shipped_model_answers_as_in_transformers() -> None:
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    model = AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32)
    texts = ["Return the absolute value of", "The function returns", "A list is", "Raises"]
    prompts = {text: list(map(int, tokenizer(text * 6)["input_ids"])) for text in texts}
    world = engine(SHIPPED, pages=256, page_size=16, chunked_prefill_size=64)
    for text, ids in prompts.items():
        world.send(text, ids, max_new_tokens=24)
    world.run()
    for text, ids in prompts.items():
        answer = model.generate(
            torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=-1
        )
        assert world.tokens[text] == answer[0, len(ids) :].tolist()


def test_a_profile_names_the_operators_of_the_steps(tmp_path: Path) -> None:
    profile = StepProfile(tmp_path / "profile", skip=1, steps=2)
    world = engine(SHIPPED, pages=16, page_size=16)
    world.send("a", range(5), max_new_tokens=12)
    while not profile.done:
        world.step()
        profile.update(world.scheduler.meter.counts.steps_total)
    world.run()
    assert (tmp_path / "profile" / "trace.json").stat().st_size > 0
    assert "aten::" in (tmp_path / "profile" / "operators.txt").read_text()
