"""Reads a WorkerPool and says everything that is wrong with it.

Its structure is checked first, then what single values mean, then the rules of its parts. The
server has checked the structure, and from 1.25 on the rules; an object that was stored under an
older CRD, or by an older server, gets here unchecked.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import ValidationError

from pando_operator.resource.base import Schema, SpecPart
from pando_operator.resource.check import Problem, joined, problems
from pando_operator.resource.pool import NAME, WorkerPool
from pando_operator.resource.rules import broken
from pando_operator.resource.spec import WorkerPoolSpec
from pando_operator.resource.structural import definitions, structural


class InvalidPool(Exception):  # noqa: N818 - it is the pool that is invalid
    """`problems` are all of them, each with the field's path."""

    def __init__(self, found: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, found)))
        self.problems = found


def parse(pool: Mapping[str, Any]) -> WorkerPool:
    """A WorkerPool from the API server's object (as JSON has it). Raises InvalidPool."""
    spec, metadata = pool.get("spec"), pool.get("metadata", {})
    found = [
        *problems(metadata.get("name"), NAME, "metadata.name"),
        *problems(spec, spec_schema(), "spec"),
    ]
    if found:
        raise InvalidPool(tuple(found))
    try:
        parsed = WorkerPool.model_validate(pool)
    except ValidationError as error:
        # A status is the operator's own.
        raise InvalidPool(tuple(map(_problem, error.errors()))) from None
    if found := [*_broken(parsed.spec, "spec")]:
        raise InvalidPool(tuple(found))
    return parsed


@cache
def spec_schema() -> Schema:
    """The schema of `spec`, without the rules."""
    return structural(WorkerPoolSpec, definitions())


def _broken(part: SpecPart, path: str) -> Iterator[Problem]:
    """The rules that the part, or one below it, does not keep."""
    if part.rules:
        value = part.model_dump(by_alias=True, mode="json", exclude_none=True)
        for rule in broken(part.rules, value):
            yield Problem(f"{path}.{rule.field}" if rule.field else path, rule.words)
    for name, field in type(part).model_fields.items():
        match getattr(part, name):
            case SpecPart() as child:
                yield from _broken(child, f"{path}.{field.alias}")
            case tuple(children):
                for index, child in enumerate(children):
                    if isinstance(child, SpecPart):
                        yield from _broken(child, f"{path}.{field.alias}[{index}]")


def _problem(error: Any) -> Problem:
    first, *rest = error["loc"]
    own = error.get("ctx", {}).get("error")  # of a validator of ours
    return Problem(joined(first, rest), str(own) if own else f"is not valid: {error['msg']}")
