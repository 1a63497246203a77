"""Why a model cannot be served: raised while it loads, and logged when the worker exits."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pando_fleet.misread import misread


class ModelError(Exception):
    """This model cannot be served. The message says what was found and what is supported."""


class ModelNotFound(ModelError):  # noqa: N818, named as in the field: it is the state, not a bug
    """The name is neither a model directory nor a hub id that is cached or can be downloaded."""


class UnsupportedModel(ModelError):  # noqa: N818
    """The model is well formed, but this worker has no code for it."""


class BrokenCheckpoint(ModelError):  # noqa: N818
    """Files are missing, unreadable or inconsistent."""


class DoesNotFit(ModelError):  # noqa: N818
    """Weights and KV pool need more memory than the budget."""


class DeviceUnavailable(ModelError):  # noqa: N818
    """The requested device does not exist."""


def unreadable(path: Path, error: OSError | msgspec.DecodeError) -> ModelError:
    """The error if a file is missing, is not JSON, or has other fields than it must."""
    if isinstance(error, OSError):
        return BrokenCheckpoint(f"cannot read {path}: {error.strerror or error}")
    return BrokenCheckpoint(f"cannot read {path}: {misread(error).about('it')}")


def mismatch(model_dir: Path, missing: Iterable[str], unexpected: Iterable[str]) -> ModelError:
    """The error if the tensors in `model_dir` differ from those of its model."""
    return BrokenCheckpoint(
        f"the weights in {model_dir} do not match its config.json:"
        f" missing {_summary(missing)}; unexpected {_summary(unexpected)}"
    )


def _summary(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(listed[:4]) or "none"
    return shown if len(listed) <= 4 else f"{shown} and {len(listed) - 4} more"
