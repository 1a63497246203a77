"""Reads a WorkerPool and says everything that is wrong with it.

The server has checked the schema, and from 1.25 on most of the rules; an object that was stored
under an older CRD, or by an older server, gets here unchecked.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import ValidationError

from pando_operator.resource.base import Schema
from pando_operator.resource.check import Problem, problems
from pando_operator.resource.pool import NAME, WorkerPool
from pando_operator.resource.rules import RULES
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
        # Of the spec nothing is left to find; a status is the operator's own.
        raise InvalidPool(tuple(map(_problem, error.errors()))) from None
    broken = tuple(
        Problem(f"spec.{rule.field}", rule.words) for rule in RULES if not rule.holds(parsed.spec)
    )
    if broken:
        raise InvalidPool(broken)
    return parsed


@cache
def spec_schema() -> Schema:
    """The schema of `spec`, without the rules."""
    return structural(WorkerPoolSpec, definitions())


def _problem(error: Any) -> Problem:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    return Problem(path.lstrip("."), f"is not valid: {error['msg']}")
