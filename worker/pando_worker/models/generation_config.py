"""A model's `generation_config.json`: end-of-sequence tokens and sampling parameters.

As in vLLM, its sampling parameters are the defaults of requests that set none.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pando_worker.models.errors import BrokenCheckpoint

_Probability = Annotated[float, Meta(ge=0, le=1)]


SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
NOTHING: Mapping[str, float | None] = MappingProxyType({})


class GenerationConfig(msgspec.Struct, frozen=True, kw_only=True):
    eos_token_ids: tuple[int, ...] = ()
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
    try:
        return msgspec.convert(known | {"eos_token_ids": ends}, GenerationConfig)
    except (msgspec.ValidationError, TypeError) as error:
        raise BrokenCheckpoint(f"{model_dir / 'generation_config.json'}: {error}") from error


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
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error
