"""Which models are tried through transformers: what their config and class say before any probe."""

from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel

# Layers that attend to earlier tokens; others keep a state that is not in the KV pool.
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention")


def admitted(path: Path, architecture: str) -> tuple[Any, Any]:
    """The config, as transformers reads `path`, and the class of the model. Only code of the
    library is run, never a repository's.

    Raises:
        UnsupportedModel: transformers has no such decoder, or it is of a kind that is not served.
        BrokenCheckpoint: transformers cannot read it.
    """
    try:
        config = AutoConfig.from_pretrained(path.parent, local_files_only=True)
    except KeyError as error:
        raise UnsupportedModel(f"transformers does not know {architecture}: {error}") from error
    except Exception as error:  # configs check their fields in all ways
        raise BrokenCheckpoint(f"transformers cannot read {path}: {error}") from error
    model_type = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    # A name that transformers lacks may be that of a repository's own code for the same model.
    name = getattr(model_type, "__name__", None)
    is_other = name != architecture and hasattr(transformers, architecture)
    if model_type is None or is_other:
        raise UnsupportedModel(f"{architecture} is no decoder of a language model there")
    if reason := _refusal(config, model_type):
        raise UnsupportedModel(reason)
    return config, model_type


def _refusal(config: Any, model_type: Any) -> str | None:
    if config.is_encoder_decoder:
        return "it is an encoder and a decoder with cross-attention"
    if config.get_text_config(decoder=True) is not config:
        return "it has parts for more than text"
    if model_type._is_stateful:
        return "its layers keep a state (linear attention, state space), which is no KV cache"
    kinds = dict.fromkeys(getattr(config, "layer_types", None) or ())
    if other := [kind for kind in kinds if kind not in _ATTENTION]:
        return f"it has layers of the type {', '.join(other)}, which are no attention"
    if getattr(config, "quantization_config", None) is not None:
        return "its weights are quantized"
    return None
