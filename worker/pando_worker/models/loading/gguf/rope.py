"""A GGUF file's rotary parameters, as `config.json` has them."""

from math import inf, isclose, pi
from typing import Any

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.loading.gguf.metadata import Metadata

# Llama 3.1 and later: all published ones have these, and a factor of 8 or 32. A file has only the
# divisors that follow from them.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_CONTEXT = 8192


def rope_fields(metadata: Metadata, head_dim: int) -> dict[str, Any]:
    """`rope_theta` and, where there is one, `rope_scaling`.

    Raises:
        BrokenCheckpoint: missing or malformed metadata.
        UnsupportedModel: a scaling that is not read.
    """
    theta = metadata.get("rope.freq_base", float) or 10_000.0
    if theta < 0:
        raise BrokenCheckpoint(f"{metadata.path} has a rope.freq_base of {theta}")
    scaling = _scaling(metadata, theta, head_dim)
    return {"rope_theta": theta} | ({"rope_scaling": scaling} if scaling else {})


def _scaling(metadata: Metadata, theta: float, head_dim: int) -> dict[str, Any] | None:
    divisors = metadata.floats("rope_freqs.weight")
    if divisors is not None:
        return _llama3(metadata, divisors, theta, head_dim)
    long = metadata.floats("rope_factors_long.weight")
    short = metadata.floats("rope_factors_short.weight")
    if long and short:
        return {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    kind = metadata.get("rope.scaling.type", str)
    if kind in (None, "none"):
        factor = metadata.get("rope.scale_linear", float)
        return {"rope_type": "linear", "factor": factor} if factor else None
    factor = metadata.need("rope.scaling.factor", float)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": metadata.need(
                "rope.scaling.original_context_length", int
            ),
        }
    raise UnsupportedModel(
        f"{metadata.path} has rotary positions scaled by {kind!r}; supported: linear, yarn,"
        " longrope, llama3"
    )


def _llama3(
    metadata: Metadata, divisors: list[float], theta: float, head_dim: int
) -> dict[str, Any]:
    """The parameters from which just these divisors of the frequencies follow."""
    factor = max(divisors)
    is_sound = 2 * len(divisors) == head_dim and 0 < factor < inf
    expected = _llama3_divisors(factor, theta, head_dim) if is_sound else []
    if not is_sound or not all(map(_is_close, divisors, expected)):
        raise UnsupportedModel(
            f"{metadata.path} scales its rotary frequencies by rope_freqs.weight in a way that is"
            " not Llama 3's, which is not supported"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "original_max_position_embeddings": _LLAMA3_CONTEXT,
        **_LLAMA3,
    }


def _is_close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-4)


def _llama3_divisors(factor: float, theta: float, head_dim: int) -> list[float]:
    """As llama.cpp's converter writes them and transformers computes with them."""
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    divisors = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * pi * theta ** (index / head_dim)
        smooth = (_LLAMA3_CONTEXT / wavelength - low) / (high - low)
        share = min(max(smooth, 0.0), 1.0)
        divisors.append(1 / ((1 - share) / factor + share))
    return divisors
