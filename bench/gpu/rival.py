"""transformers' continuous batching on the same shapes, random weights and prompts.

Its attention is FlashAttention 3 or 2 if installed, otherwise torch's: `attention` returns which,
and the report shows it.
"""

import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
)
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from bench.gpu.engine import random_prompts
from bench.gpu.parts import EndToEnd, Sizes, median
from bench.gpu.shapes import Shape

PAGE_SIZE = 256  # transformers' default, whose name differs between its versions


def end_to_end(
    model_dir: Path, shape: Shape, sizes: Sizes, device: torch.device, dtype: torch.dtype
) -> list[EndToEnd]:
    """From sending prompts to receiving all tokens, for as many rounds as Pando's."""
    model = _random_model(model_dir, device, dtype)
    pages = -(-(sizes.context + sizes.new_tokens) // PAGE_SIZE)  # of a row
    config = ContinuousBatchingConfig(
        num_blocks=2 * max(sizes.rival_batches) * pages + 64,
        max_batch_tokens=max(sizes.context, 4096),
    )
    wanted = GenerationConfig(max_new_tokens=sizes.new_tokens, do_sample=False, pad_token_id=0)
    found = []
    for batch in sizes.rival_batches:

        def seconds(number: int, batch: int = batch) -> float:
            prompts = random_prompts(batch, sizes.context, shape.vocab_size, number)
            started = time.perf_counter()
            results = model.generate_batch(
                prompts,
                generation_config=wanted,
                continuous_batching_config=config,
                persistent_manager=True,
            )
            took = time.perf_counter() - started
            counts = {len(result.generated_tokens) for result in results.values()}
            assert counts == {sizes.new_tokens}, counts
            return took

        took = median(sizes.rounds, seconds)
        found.append(EndToEnd(batch, took, batch * sizes.new_tokens / took))
    return found


def attention() -> str:
    """The best one installed, by transformers' name."""
    if is_flash_attn_3_available():
        return "flash_attention_3"
    return "flash_attention_2" if is_flash_attn_2_available() else "sdpa"


def _random_model(model_dir: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """Built on the device, so that nothing is read and the host holds none of it."""
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(model_dir), dtype=dtype, attn_implementation=attention()
        )
    model.generation_config = GenerationConfig()  # no end of sequence, no sampling
    return model.eval()
