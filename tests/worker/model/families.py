"""The families of models that have a file of their own: a tiny config of each, a line a case.

Add a family here, and every test of `test_families.py` and `test_tensor_parallel.py` runs on it.
Windows and original contexts are shorter than the tests' prompts, so that they count.
"""

from typing import Any

from transformers import LlamaConfig

FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "llama, biases": (
        LlamaConfig,
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
}
