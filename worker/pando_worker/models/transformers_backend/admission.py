"""Which models are tried through transformers, judged by config and class before any probe."""

from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.transformers_backend.known import UNKNOWN

# Layer types that attend to earlier tokens; others keep a state outside the KV pool.
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention")


def admitted(path: Path, architecture: str) -> tuple[Any, Any]:
    """The config, as transformers reads `path`, and the model's class. Runs only code of the
    library, never of a repository.

    Raises:
        UnsupportedModel: transformers has no such decoder, or this kind is not supported.
        BrokenCheckpoint: transformers cannot read it.
    """
    try:
        config = AutoConfig.from_pretrained(path.parent, local_files_only=True)
    except KeyError as error:
        raise UnsupportedModel(f"transformers does not know {architecture}: {error}") from error
    except ValueError as error:
        if "Transformers does not recognize this architecture" not in str(error):
            raise BrokenCheckpoint(f"transformers cannot read {path}: {error}") from error
        raise UnsupportedModel(UNKNOWN) from error
    except Exception as error:  # configs raise all kinds of errors for bad fields
        raise BrokenCheckpoint(f"transformers cannot read {path}: {error}") from error
    model_type = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    # If transformers lacks the name, it may be a repository's own code for the same model.
    name = getattr(model_type, "__name__", None)
    is_other = name != architecture and hasattr(transformers, architecture)
    if model_type is None or is_other:
        raise UnsupportedModel(f"{architecture} is not a language model's decoder in transformers")
    if reason := _refusal(config, model_type):
        raise UnsupportedModel(reason)
    return config, model_type


def _refusal(config: Any, model_type: Any) -> str | None:
    if config.is_encoder_decoder:
        return "it is an encoder and a decoder with cross-attention"
    if config.get_text_config(decoder=True) is not config:
        return "it has parts for more than text"
    if model_type._is_stateful:
        return "its layers keep a state (linear attention, state space) instead of a KV cache"
    kinds = dict.fromkeys(getattr(config, "layer_types", None) or ())
    if other := [kind for kind in kinds if kind not in _ATTENTION]:
        return f"it has layers of type {', '.join(other)}, which are not attention"
    if getattr(config, "quantization_config", None) is not None:
        return "its weights are quantized"
    return None
