"""`ListField`: a list in the manifest that is made of several knobs, such as rate policies."""

from collections.abc import Mapping
from typing import Any, Protocol

from pando_sim.tuning.knobs import Value


class ListField(Protocol):
    @property
    def path(self) -> str:
        """Of the list in the manifest, below `spec`; its knobs' paths are below this one."""
        ...

    def made(self, values: Mapping[str, Value]) -> list[dict[str, Any]] | None:
        """The list that has these values; None leaves what the manifest has."""
        ...
