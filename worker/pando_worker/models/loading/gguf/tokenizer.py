"""A GGUF file's tokenizer, as the files of a model directory.

transformers builds the tokenizer from the file's vocabulary and merges; what it leaves open (BOS
and EOS around a text, the space before it, how SmolLM splits digits) is settled here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.loading.gguf.metadata import Metadata

_MODELS = ("gpt2", "llama")
"""Byte-level BPE, and SentencePiece's BPE."""

# How a byte-level vocabulary splits text, where transformers has no entry: as GPT-2 does, and after
# that each digit alone.
_AS_GPT2 = ("default", "gpt-2", "olmo", "phi-2")
_DIGIT_BY_DIGIT = ("smollm", "starcoder", "refact", "command-r")
_BOS_BY_DEFAULT = ("llama3", "llama-v3", "llama-bpe")

_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


def write_tokenizer(metadata: Metadata, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json.

    Raises:
        BrokenCheckpoint: missing or malformed metadata.
        UnsupportedModel: a kind of tokenizer that is not read.
    """
    tokens = metadata.strings("tokenizer.ggml.tokens")
    special = {
        f"{name}_token": _token(metadata, tokens, f"{key}_token_id")
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    _write(folder / "tokenizer.json", _tokenizer(metadata, tokens, special))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.need("context_length", int),
        "chat_template": metadata.get("tokenizer.chat_template", str),
        **special,
    }
    _write(folder / "tokenizer_config.json", {k: v for k, v in config.items() if v is not None})


def write_generation_config(
    metadata: Metadata, sampling: Mapping[str, float], folder: Path
) -> None:
    """Writes generation_config.json: where outputs end, and how the model likes to be sampled.

    Raises BrokenCheckpoint for malformed metadata.
    """
    ends = {metadata.get(f"tokenizer.ggml.{key}", int) for key in _END_KEYS}
    fields: dict[str, Any] = {"eos_token_id": sorted(end for end in ends if end is not None)}
    for name, key in _SAMPLING.items():
        if (value := metadata.get(key, float)) is not None:
            fields[name] = int(value) if name == "top_k" else value
    _write(folder / "generation_config.json", fields | dict(sampling))


def _tokenizer(
    metadata: Metadata, tokens: list[str], special: dict[str, str | None]
) -> dict[str, Any]:
    model = metadata.need("tokenizer.ggml.model", str)
    pre = metadata.get("tokenizer.ggml.pre", str) or "default"
    if model not in _MODELS:
        raise UnsupportedModel(
            f"{metadata.path} has a tokenizer of the kind {model!r}; supported: {_MODELS}"
        )
    # Imported here: they take a second, and all but the first start do without.
    from transformers.integrations.gguf.gguf_tokenizer_mapping import (
        GGUF_PRE_TOKENIZER_SPLITS,
        convert_gguf_tokenizer,
    )

    known = (*_AS_GPT2, *_DIGIT_BY_DIGIT, *GGUF_PRE_TOKENIZER_SPLITS)
    if model == "gpt2" and pre not in known:
        raise UnsupportedModel(
            f"{metadata.path} splits text as {pre!r} (tokenizer.ggml.pre), which is not supported;"
            f" supported: {', '.join(known)}"
        )
    fields: dict[str, Any] = {
        "tokenizer_type": model,
        "pre_tokenizer_type": pre,
        "tokens": tokens,
        "scores": metadata.numbers("tokenizer.ggml.scores"),
        "token_type": metadata.numbers("tokenizer.ggml.token_type"),
    }
    if merges := metadata.strings("tokenizer.ggml.merges"):
        fields["merges"] = merges
    try:
        backend, _ = convert_gguf_tokenizer(metadata.architecture, fields)
        state: dict[str, Any] = msgspec.json.decode(backend.to_str())
    except Exception as error:  # whatever a converter may stumble over in a hostile file
        raise BrokenCheckpoint(f"{metadata.path} has no sound tokenizer: {error!r}") from error
    if pre in _DIGIT_BY_DIGIT and model == "gpt2":
        state["pre_tokenizer"] = _digit_by_digit()
    if model == "llama":
        state |= _sentencepiece(metadata.flag("tokenizer.ggml.add_space_prefix", default=True))
    _add_ends(metadata, state, special, adds_bos=model == "llama" or pre in _BOS_BY_DEFAULT)
    return state


def _digit_by_digit() -> dict[str, Any]:
    return {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": True,
                "use_regex": True,
            },
        ],
    }


def _sentencepiece(is_space_before: bool) -> dict[str, Any]:
    """Spaces are ▁, one of them before the text: as SentencePiece has it, and published files."""
    steps: list[dict[str, Any]] = [{"type": "Prepend", "prepend": "▁"}] if is_space_before else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
    }


def _add_ends(
    metadata: Metadata, state: dict[str, Any], special: dict[str, str | None], *, adds_bos: bool
) -> None:
    """BOS before and EOS after a text, where the file asks for them."""
    bos = special["bos_token"] if metadata.flag("tokenizer.ggml.add_bos_token", adds_bos) else None
    eos = special["eos_token"] if metadata.flag("tokenizer.ggml.add_eos_token", False) else None
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    around = [{"SpecialToken": {"id": one, "type_id": 0}} if one else None for one in (bos, eos)]
    if not any(around):
        state["post_processor"] = None
        return
    ids = {
        token: metadata.need(f"tokenizer.ggml.{key}_token_id", int)
        for token, key in ((bos, "bos"), (eos, "eos"))
        if token
    }
    single = [one for one in (around[0], text, around[1]) if one]
    second = {"Sequence": {"id": "B", "type_id": 0}}
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *[second if one is text else one for one in single]],
        "special_tokens": {
            token: {"id": token, "ids": [id], "tokens": [token]} for token, id in ids.items()
        },
    }


def _token(metadata: Metadata, tokens: list[str], key: str) -> str | None:
    id = metadata.get(f"tokenizer.ggml.{key}", int)
    if id is None:
        return None
    if not 0 <= id < len(tokens):
        raise BrokenCheckpoint(f"{metadata.path}: {key} is {id}, of {len(tokens)} tokens")
    return tokens[id]


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.encode(content))
