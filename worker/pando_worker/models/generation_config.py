"""A model's `generation_config.json`: end-of-sequence tokens and sampling parameters.

As in vLLM, its sampling parameters are the defaults of requests that set none.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pando_worker.models.errors import BrokenCheckpoint, unreadable

_Probability = Annotated[float, Meta(ge=0, le=1)]


SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
NOTHING: Mapping[str, float | None] = MappingProxyType({})


_WITHOUT_EFFECT: Mapping[str, float | None] = {
    "num_beams": 1,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "diversity_penalty": 0,
    "exponential_decay_length_penalty": None,
    "length_penalty": 1,
    "min_length": 0,
    "min_new_tokens": None,
    "forced_eos_token_id": None,
    "bad_words_ids": None,
    "sequence_bias": None,
    "typical_p": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
}
_OF_SPEECH = ("suppress_tokens", "begin_suppress_tokens")
"""Fields that change what transformers generates and that have no effect here, with the values that
change nothing there; the last two have one for models that hear."""


class GenerationConfig(msgspec.Struct, frozen=True, kw_only=True):
    eos_token_ids: tuple[int, ...] = ()
    # Of encoder-decoders: with which the decoder begins, `decoder_start_token_id` and, if it has
    # one, `forced_bos_token_id`.
    decoder_start: tuple[int, ...] = ()
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: _Probability = 1.0
    top_k: Annotated[int, Meta(ge=0, lt=2**31)] = 0  # 0 keeps every token
    min_p: _Probability = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] = 1.0


def read_generation_config(
    model_dir: Path,
    eos_token_id: int | None,
    vocab_size: int,
    overrides: Mapping[str, float | None] = NOTHING,
) -> GenerationConfig:
    """The file's values; `config.json` and the tokenizer add end-of-sequence tokens.

    Args:
        overrides: replace the file's values where not None; keys are the names in SAMPLING

    Ids that the model cannot produce are dropped: some files use -1 for none.

    Raises BrokenCheckpoint for a malformed file.
    """
    generation = _read(model_dir / "generation_config.json")
    config = _read(model_dir / "config.json")
    eos = {*_ids(generation), *_ids(config)}
    if eos_token_id is not None:
        eos.add(eos_token_id)
    ends = sorted(id for id in eos if isinstance(id, int) and 0 <= id < vocab_size)
    known = {name: generation[name] for name in SAMPLING if generation.get(name) is not None}
    known |= {name: value for name, value in overrides.items() if value is not None}
    names = ("decoder_start_token_id", "forced_bos_token_id")
    start = [generation.get(name, config.get(name)) for name in names]
    if start[0] is not None:
        known["decoder_start"] = [id for id in start if id is not None]
    try:
        return msgspec.convert(known | {"eos_token_ids": ends}, GenerationConfig)
    except msgspec.ValidationError as error:
        raise unreadable(model_dir / "generation_config.json", error) from error
    except TypeError as error:
        raise BrokenCheckpoint(f"{model_dir / 'generation_config.json'}: {error}") from error


def without_effect(model_dir: Path, *, hears: bool) -> str:
    """The fields of `generation_config.json` that are not followed, with their values; empty if
    there are none. Like transformers, reads them in `config.json` where there is no such file.

    Args:
        hears: whether the model reads sound

    Raises BrokenCheckpoint for a malformed file.
    """
    path = model_dir / "generation_config.json"
    given = _read(path if path.is_file() else model_dir / "config.json")
    neutral = dict(_WITHOUT_EFFECT)
    if not hears:
        neutral |= dict.fromkeys(_OF_SPEECH)
    found = [
        f"{name} = {str(given[name])[:80]}"
        for name, value in neutral.items()
        if given.get(name) not in (None, value)
    ]
    return ", ".join(found)


def _ids(config: dict[str, Any]) -> list[Any]:
    value = config.get("eos_token_id")
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
