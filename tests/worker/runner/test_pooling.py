"""Embeddings through scheduler, pools and model equal those from transformers' hidden states."""

from pathlib import Path

import pytest
import torch

from pando_worker.messages import Pooling
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.hash_model import pooled_states, unit
from tests.worker.scheduler.world import World


@pytest.mark.parametrize("pooling", Pooling)
def test_an_embedding_is_that_of_transformers_hidden_states(
    tmp_path: Path, pooling: Pooling
) -> None:
    reference = Reference(tmp_path)
    settings = WorkerSettings(model=str(tmp_path), page_size=4, max_total_tokens=400, threads=1)
    world = World(pages=100, chunked_prefill_size=16, runner=TorchModelRunner(settings))
    prompts = {f"r{length}": prompt(length, seed=length) for length in (1, 7, 16, 45)}
    world.send("stream", prompt(9), max_new_tokens=12)
    for rid, tokens in prompts.items():
        world.embed(rid, tokens, pooling)
    world.run()
    for rid, tokens in prompts.items():
        with torch.inference_mode():
            hidden = reference.model.model(torch.tensor([tokens])).last_hidden_state[0].double()
        expected = unit(pooled_states(hidden.numpy(), pooling))
        assert world.embeddings[rid] == pytest.approx(expected, abs=1e-5)
