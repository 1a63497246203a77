"""YAML that people write: a name that occurs twice in a mapping is an error, and so is a value that
looks like a date or a number and is none.

YAML forbids both, but PyYAML would silently keep the last one of a name, and raises whatever its
conversions raise. Here all that is wrong with a text is a `yaml.YAMLError`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for name, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(name, yaml.ScalarNode):
                continue
            if name.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{name.value!r} occurs twice", problem_mark=name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            kind, why = node.tag.rpartition(":")[2], "quote it if it is text"
            if kind == "timestamp" and isinstance(error, ValueError):
                why = str(error)  # such as "month must be in 1..12"
            raise yaml.MarkedYAMLError(
                problem=f"a value of type {kind} cannot be read ({why})",
                problem_mark=node.start_mark,
            ) from None


def load(text: str | bytes) -> Any:
    """Raises yaml.YAMLError."""
    with _depth_limited():
        return yaml.load(text, _Loader)


def load_all(text: str) -> list[Any]:
    """The documents of a text with several. Raises yaml.YAMLError."""
    with _depth_limited():
        return list(yaml.load_all(text, _Loader))


def problem_of(error: yaml.YAMLError) -> str:
    """The problem and its line, without the text around it, which may contain a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    return f"{problem} in line {mark.line + 1}" if mark else str(problem)


@contextmanager
def _depth_limited() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="it is nested too deeply") from None
