"""What a setting chooses among: a registry of named things, each with a line of help.

A room that has several of a kind (policies, parsers, scalers) lists them once with `by_name`. The
setting is declared with `one_of`, so that flags, schemas and error messages have the same names,
and gets its description from `described`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Named(Protocol):
    """One of several that a setting chooses among."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str:
        """One line for `--help` and the documentation, without a full stop."""
        ...


NamedT = TypeVar("NamedT", bound=Named)


def by_name(*entries: NamedT) -> Mapping[str, NamedT]:
    """The registry of these entries, in their order. Raises ValueError if two have one name."""
    registry = {entry.name: entry for entry in entries}
    if len(registry) < len(entries):
        raise ValueError(f"a name stands twice in {[entry.name for entry in entries]}")
    return registry


@dataclass(frozen=True, slots=True)
class OneOf:
    """In a setting's `Annotated[str, …]`: pydantic takes these names and no other text."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


def one_of(registry: Iterable[str], *more: str) -> OneOf:
    """`more` are names that the setting has besides those of the registry, such as "auto"."""
    return OneOf((*more, *registry))


def described(what: str, registry: Mapping[str, NamedT]) -> str:
    """A setting's description: what it is, then each name with its help."""
    return f"{what}: " + ", ".join(f"{name} ({entry.help})" for name, entry in registry.items())
