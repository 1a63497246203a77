"""`Space`: from values of the knobs to a manifest that the operator accepts, and back."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pando_operator.resource.parse import parse
from pando_operator.resource.pool import WorkerPool
from pando_sim.tuning.knobs import POLICY, SCALING, Knob, KnobError, Value
from pando_sim.tuning.lists import ListField

Document = dict[str, Any]
"""A WorkerPool as JSON."""

Values = dict[str, Value]
"""By path of the knob."""

_PARTS_THAT_A_KNOB_TURNS_ON = {"scaling.panic.threshold": "scaling.panic"}
"""Turning the knob off removes the whole part."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values, and the manifest that has them."""

    values: Values
    document: Document
    pool: WorkerPool
    policy: str


class Space:
    """All manifests that differ from `document` in the knobs only."""

    def __init__(
        self,
        document: Document,
        policy: str,
        knobs: Sequence[Knob],
        lists: Sequence[ListField] = (),
    ) -> None:
        """
        Args:
            document: today's manifest, valid.
            policy: today's placement policy.
            lists: those that some of the knobs make.
        """
        self._document = document
        self._policy = policy
        self._lists = lists
        self.today: Values = {}
        spec = parse(document).spec.model_dump(by_alias=True, mode="json")
        for knob in knobs:
            if knob.in_list:
                self.today[knob.path] = knob.default
            else:
                self.today[knob.path] = policy if knob.path == POLICY else _at(spec, knob.path)
        self.knobs = tuple(knob.covering(self.today[knob.path]) for knob in knobs)

    def around(self, document: Document) -> "Space":
        """The same for another manifest."""
        return Space(document, self._policy, self.knobs, self._lists)

    @property
    def defaults(self) -> Values:
        """Every knob of `spec.scaling` as if the manifest did not name it; lists stay."""
        document = deepcopy(self._document)
        for knob in self.knobs:
            if knob.path.startswith(SCALING) and not knob.in_list:
                _remove(document["spec"], _PARTS_THAT_A_KNOB_TURNS_ON.get(knob.path, knob.path))
        return self.around(document).today

    def tries(self) -> list[Values]:
        """What is tried first: the defaults with one knob turned."""
        plain = self.defaults
        return [
            plain | {knob.path: value}
            for knob in self.knobs
            for value in (knob.tries or knob.choices)
            if value != plain[knob.path]
        ]

    def settled(self, values: Mapping[str, Value]) -> Values:
        """The values; a knob that does nothing without another one, which is off, has today's."""
        kept: Values = {}
        for knob in self.knobs:
            is_idle = knob.needs and all(kept.get(need) is None for need in knob.needs)
            kept[knob.path] = self.today[knob.path] if is_idle else values[knob.path]
        return kept

    def candidate(self, values: Mapping[str, Value]) -> Candidate:
        """Raises InvalidPool if the operator would refuse it."""
        document, policy = deepcopy(self._document), self._policy
        kept = self.settled(values)
        for knob in self.knobs:
            value = kept[knob.path]
            if knob.in_list:
                continue
            if knob.path == POLICY:
                policy = str(value)
            elif value is None:
                _remove(document["spec"], _PARTS_THAT_A_KNOB_TURNS_ON.get(knob.path, knob.path))
            elif value != self.today[knob.path]:
                whole = knob.is_whole and not isinstance(value, str)
                _set(document["spec"], knob.path, int(value) if whole else value)
        for one in self._lists:
            if (made := one.made(kept)) is not None:
                _set(document["spec"], one.path, made)
        return Candidate(kept, document, parse(document), policy)

    def changed(self, values: Mapping[str, Value]) -> dict[str, tuple[Value, Value]]:
        """What differs from today's manifest, by path: its value today and the new one."""
        return {
            path: (value, values[path])
            for path, value in self.today.items()
            if values[path] != value
        }

    def patch(self, values: Mapping[str, Value]) -> Document:
        """A merge patch of the pool; null removes a field."""
        patch: Document = {}
        for path, (_, value) in self.changed(values).items():
            path = _PARTS_THAT_A_KNOB_TURNS_ON.get(path, path) if value is None else path
            knob = next(one for one in self.knobs if one.path.startswith(path))
            if path == POLICY or knob.in_list:
                continue
            whole = knob.is_whole and isinstance(value, float)
            _set(patch, f"spec.{path}", int(value) if whole and value is not None else value)
        for one in self._lists:
            if (made := one.made(values)) is not None:
                _set(patch, f"spec.{one.path}", made)
        return patch


def chosen_knobs(
    known: Sequence[Knob], asked: Sequence[Knob], only: Sequence[str], document: Document
) -> list[Knob]:
    """The knobs of a search: those of `asked` replace known ones; `only` leaves some of the known.

    `only` has fields, parts such as `behavior.scaleDown.policies` for all of their fields, or
    `named` for those that the manifest sets. Raises KnobError.
    """
    by_path = {knob.path: knob for knob in known} | {knob.path: knob for knob in asked}
    named = {one.path for one in asked}
    companions = {path for path, knob in by_path.items() if named.intersection(knob.needs)}
    for name in only:
        paths = [path for path in by_path if _is_in(path, name) or _is_in(path, SCALING + name)]
        if name == "named":
            paths = [path for path in by_path if _at(document["spec"], path) is not None]
        elif not paths:
            fields = ", ".join(path.removeprefix(SCALING) for path in by_path)
            raise KnobError(f"--only {name!r}: there is no field {name}; there are {fields}")
        named |= set(paths)
    if only and not named:
        raise KnobError("--only named: the manifest sets none of the fields that can be searched")
    wanted = named | companions | {need for path in named for need in by_path[path].needs}
    if not only:
        wanted |= {path for path, knob in by_path.items() if not knob.only_if_asked}
    return [knob for path, knob in by_path.items() if path in wanted]


def _is_in(path: str, part: str) -> bool:
    return path == part or path.startswith(part + ".")


def _at(spec: Mapping[str, Any], path: str) -> Value:
    part: Any = spec
    for name in path.split("."):
        part = part.get(name) if isinstance(part, Mapping) else None
    return part if isinstance(part, str) or part is None else float(part)


def _set(part: Document, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        inner = part.get(name)
        if inner is None:
            inner = part[name] = {}
        part = inner
    part[last] = value


def _remove(part: Document, path: str) -> None:
    *parents, last = path.split(".")
    for name in parents:
        inner = part.get(name)
        if inner is None:
            return
        part = inner
    part.pop(last, None)
