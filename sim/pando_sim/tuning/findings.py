"""`Findings`: everything that a search found, as results.json has it and as the report shows it."""

from pathlib import Path

import msgspec

from pando_sim.tuning.knobs import Value
from pando_sim.tuning.score import Score

SCHEMA = "pando.dev/tuning/v1"
"""Under this name, fields may be added, but never removed or given another meaning."""

TODAY, DEFAULTS = "today", "defaults"
"""The names of the points of today's manifest, and of it without the fields that were searched."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate. `searched` is of the shorter excerpt if it was not played on the longer one."""

    name: str
    values: dict[str, Value]
    is_on_front: bool
    is_only_tried: bool = False  # not on the longer excerpt
    searched: Score
    tried: Score | None = None  # of the shorter excerpt, if it was played on the longer one
    judged: Score | None = None
    varied: dict[str, Score] = {}  # by variation, on the part that was searched
    worst: str | None = None  # of `varied`: the one with the most misses


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """What a field of the recommended point is good for."""

    path: str
    words: str
    today: Value
    value: Value
    with_it: Score  # of the recommended point, on the requests on which candidates are tried
    without: Score  # the same point with the field as it is today, on the same requests


class TuneAbout(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    pando_version: str
    trace: str
    parts: str  # how the trace was divided
    searched_requests: int  # of the whole part
    tried_on: int  # of them, in the runs that try candidates
    checked_on: int  # of them, in the runs that `Shown.searched` is of
    judged_requests: int  # of the other part, in the runs that judge
    other_requests: int  # of that whole part
    pool: str
    name: str  # of the pool
    cost_model: str
    seed: int
    ttft_p99_s: float
    gap_p99_s: float
    budget: float | None  # GPU-hours a week
    as_good_as_today: bool = False
    unplayed: int = 0  # lines of the trace that were left out
    warning: str = ""  # why little can be said from the trace
    no_schedules: str = ""  # why schedules by hour were not searched


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """results.json. Times are seconds of the simulation."""

    schema: str = SCHEMA
    about: TuneAbout
    trials: int  # candidates that were tried
    lost: int  # of them, those whose runs were ended early
    refused: int  # of them, those that the operator would refuse
    interrupted: bool
    points: list[Shown]
    recommended: str  # a point's name
    is_kept_today: bool = False  # something was found, but the part that judges prefers today's
    passed_over: str | None = None  # the best on the part that was searched, if the part that
    # judges says that the recommended one, which is simpler, is better
    contributions: list[Contribution] = []
    importances: list[dict[str, float]] = []  # for GPU-hours and for misses, by field
    policy: str | None = None  # of the routers, if it was searched and differs
    patch: str = ""  # JSON merge patch; empty if nothing changes
    apply: str = ""  # the kubectl command

    def point(self, name: str) -> Shown:
        return next(one for one in self.points if one.name == name)


def write_findings(path: Path, findings: Findings) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(findings), indent=1) + b"\n")
