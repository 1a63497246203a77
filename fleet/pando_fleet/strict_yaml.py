"""YAML that people write: a name that occurs twice in a mapping is an error.

YAML forbids it, but PyYAML would silently keep the last one.
"""

from collections.abc import Iterator
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode):
                continue
            if name.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{name.value!r} occurs twice", problem_mark=name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def load(text: str) -> Any:
    """Raises yaml.YAMLError, and RecursionError for a text that is nested too deeply."""
    return yaml.load(text, _Loader)


def load_all(text: str) -> Iterator[Any]:
    """The documents of a text with several. Raises yaml.YAMLError while it is read."""
    return iter(yaml.load_all(text, _Loader))


def problem_of(error: yaml.YAMLError) -> str:
    """The problem and its line, without the text around it, which may contain a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    return f"{problem} in line {mark.line + 1}" if mark else str(problem)
