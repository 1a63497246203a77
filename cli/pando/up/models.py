"""The models that `pando up` and `pando demo` know by name."""

from pathlib import Path

import pando

TINY = "tiny"
SMOLLM2 = "smollm2"  # of pando_worker.models.loading.packaged

SHIPPED_MODEL = Path(pando.__file__).parents[2] / "examples" / "models" / "pando-tiny"


class ModelMissingError(Exception):
    """A model with a known name is missing; the message is one line."""


def model_path(name: str) -> str:
    """What a worker's --model takes: as given, but for the small model that a checkout has.

    Raises:
        ModelMissingError: this is no checkout.
    """
    if name != TINY:
        return name
    if not SHIPPED_MODEL.is_dir():
        raise ModelMissingError(f"the model {TINY!r} is only in a checkout of Pando")
    return str(SHIPPED_MODEL)
