"""Which architectures transformers knows, read from its files: its import takes seconds."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.registry import FAMILIES

UNKNOWN = "it does not know this architecture; a newer one may"
# These list the `model_type` of every config; the first one since transformers 5.
_LISTS = ("auto_mappings.py", "configuration_auto.py")


def check_known(config: ModelConfig) -> None:
    """Raises UnsupportedModel if only transformers can run the model, and does not know it."""
    if config.impl != "transformers" and config.architecture in FAMILIES:
        return
    name = config.fields.get("model_type")
    lists = list(_lists())
    if lists and isinstance(name, str) and not any(_has(text, name) for text in lists):
        raise refused(config, UNKNOWN)


def refused(config: ModelConfig, reason: str | UnsupportedModel) -> UnsupportedModel:
    """The error for a model that transformers cannot run here."""
    return UnsupportedModel(
        f"{config.path} ({config.architecture}) cannot be served through transformers"
        f" {version('transformers')}: {reason}"
    )


def _lists() -> Iterator[str]:
    found = find_spec("transformers")
    for folder in (found and found.submodule_search_locations) or ():
        for name in _LISTS:
            path = Path(folder, "models/auto", name)
            if path.is_file():
                yield path.read_text(encoding="utf-8")


def _has(text: str, name: str) -> bool:
    return re.search(rf"""["']{re.escape(name)}["']""", text) is not None
