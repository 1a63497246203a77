"""The cost of integer weights in a real model's perplexity."""

import pytest

from bench.engine.perplexity import TEXT, perplexity
from pando_worker.models.loading.hub import resolve_model
from pando_worker.settings import WorkerSettings
from pando_worker.tokenizer.loading import load_tokenizer

TOKENS, WINDOW = 1024, 256


@pytest.mark.long
def test_integers_cost_a_real_model_little_perplexity() -> None:
    text = TEXT.read_text(encoding="utf-8")
    ids = load_tokenizer(resolve_model("smollm2")).encode(text, add_special_tokens=False)
    windows = [ids[start : start + WINDOW] for start in range(0, TOKENS, WINDOW)]

    def of(quantization: str, cpu_kernels: str = "on") -> float:
        settings = WorkerSettings.model_validate(
            {
                "model": "smollm2",
                "quantization": quantization,
                "cpu_kernels": cpu_kernels,
                "max_total_tokens": 2 * WINDOW,
                "radix_cache": False,
            }
        )
        return perplexity(settings, windows, first_ids=[])

    plain = of("none", cpu_kernels="off")
    for quantization, bound in (("auto", 1.01), ("int8", 1.01), ("int4", 1.04)):
        assert of(quantization) / plain < bound, quantization
