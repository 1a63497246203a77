"""The transformers library's `generate` (one static batch), as it is and compiled over a static
cache, and its continuous batching."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    CompileConfig,
    ContinuousBatchingConfig,
    GenerationConfig,
)

from bench.engine.engines.contestant import Engine, Job, Outcome, Stopwatch


def generate(model: Path, threads: int) -> Engine:
    """All prompts must have the same length."""
    return _static_batch(model, threads)


def compiled(model: Path, threads: int) -> Engine:
    """`generate` over a static cache, with decode steps that torch compiles for each batch size."""
    compiling = CompileConfig(mode="default")
    compiling._compile_all_devices = True  # on CPUs generate would not
    return _static_batch(model, threads, cache_implementation="static", compile_config=compiling)


def _static_batch(model: Path, threads: int, **how: Any) -> Engine:
    loaded = _load(model, threads, "sdpa")

    @torch.inference_mode()
    def run(job: Job) -> Outcome:
        watch = Stopwatch()
        ids = torch.tensor(job.prompts)
        out = loaded.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=_greedy(job.new_tokens, **how),
        )
        return watch.outcome(out[:, ids.shape[1] :].tolist())

    return run


def generate_batch(model: Path, threads: int) -> Engine:
    """Keeps its manager from job to job: creating one is not part of serving."""
    loaded = _load(model, threads, "sdpa")
    # The sizes are set, because on a CPU they would be computed from all of the memory.
    config = ContinuousBatchingConfig(page_size=32, num_blocks=4096, max_batch_tokens=4096)

    def run(job: Job) -> Outcome:
        watch = Stopwatch()
        results = loaded.generate_batch(
            job.prompts,
            generation_config=_greedy(job.new_tokens),
            continuous_batching_config=config,
            persistent_manager=True,
            warmup=False,
        )
        by_number = sorted(results.values(), key=lambda r: int(r.request_id.rsplit("_", 1)[1]))
        return watch.outcome([list(result.generated_tokens) for result in by_number])

    return run


def _load(model: Path, threads: int, attention: str) -> Any:
    torch.set_num_threads(threads)
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation=attention
    )
    loaded.generation_config = GenerationConfig()  # no end of sequence, no sampling
    return loaded.eval()


def _greedy(new_tokens: int, **how: Any) -> GenerationConfig:
    return GenerationConfig(max_new_tokens=new_tokens, do_sample=False, pad_token_id=0, **how)
