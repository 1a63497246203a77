"""Reads a WorkerPool and reports all of its errors.

It checks the structure, then single values, then the rules of the parts. The API server has checked
the structure, and from 1.25 on the rules, but not for objects that were stored under an older CRD
or by an older server.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from pydantic import ValidationError

from pando_operator.resource.base import Schema, SpecPart
from pando_operator.resource.check import Problem, joined, problems, unknown
from pando_operator.resource.pool import NAME, WorkerPool
from pando_operator.resource.rules import broken
from pando_operator.resource.spec import WorkerPoolSpec
from pando_operator.resource.structural import definitions, structural


class InvalidPool(Exception):  # noqa: N818 - it is the pool that is invalid
    """`problems` lists every error with its field's path."""

    def __init__(self, found: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, found)))
        self.problems = found


def parse(pool: Mapping[str, Any]) -> WorkerPool:
    """Read a WorkerPool from the API server's JSON. Raises InvalidPool."""
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


def stored(pool: Mapping[str, Any]) -> tuple[WorkerPool, tuple[str, ...]]:
    """Read a WorkerPool that the API server has, and the paths of the fields that are left out.

    The server drops fields that its CRD does not have, so those that are unknown here are a newer
    CRD's. It fills in their defaults, so every pool has them as soon as the CRD is upgraded, while
    this operator still leads.

    Raises InvalidPool.
    """
    paths = list(unknown(pool.get("spec"), spec_schema()))
    if not paths:
        return parse(pool), ()
    known = deepcopy(dict(pool))
    for path in paths:
        *parents, name = ("spec", *path)
        part: Any = known
        for parent in parents:
            part = part[parent]
        del part[name]
    return parse(known), tuple(joined("spec", path) for path in paths)


@cache
def spec_schema() -> Schema:
    """The schema of `spec`, without the rules."""
    return structural(WorkerPoolSpec, definitions())


def _broken(part: SpecPart, path: str) -> Iterator[Problem]:
    """The rules that the part, or a part inside it, breaks."""
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
    own = error.get("ctx", {}).get("error")  # from our own validators
    return Problem(joined(first, rest), str(own) if own else f"is not valid: {error['msg']}")
