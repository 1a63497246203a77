"""Why a model cannot be served: raised while it loads, shown to whoever started the worker."""

from collections.abc import Iterable
from pathlib import Path


class ModelError(Exception):
    """This model cannot be served. The message says what was found and what would be right."""


class ModelNotFound(ModelError):  # noqa: N818, named as in the field: it is the state, not a bug
    """Neither a model directory nor a hub id that can be fetched or is cached."""


class UnsupportedModel(ModelError):  # noqa: N818
    """A well-formed model that this worker has no code for."""


class BrokenCheckpoint(ModelError):  # noqa: N818
    """Files that are missing, unreadable or disagree with each other."""


class DoesNotFit(ModelError):  # noqa: N818
    """Weights and KV pool need more memory than the budget."""


class DeviceUnavailable(ModelError):  # noqa: N818
    """The device that is asked for is not there."""


def mismatch(model_dir: Path, missing: Iterable[str], unexpected: Iterable[str]) -> ModelError:
    """Of the tensors in `model_dir` and those that its model has."""
    return BrokenCheckpoint(
        f"the weights in {model_dir} do not match its config.json:"
        f" missing {_summary(missing)}; unexpected {_summary(unexpected)}"
    )


def _summary(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(listed[:4]) or "none"
    return shown if len(listed) <= 4 else f"{shown} and {len(listed) - 4} more"
