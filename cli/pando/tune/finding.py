"""Parts of the findings: what points show, what fields are good for, and how to apply them."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TypedDict

from pando.tune.noted import annotated
from pando.tune.plan import TunePlan
from pando_sim.tuning.choice import Point
from pando_sim.tuning.findings import Contribution, Shown
from pando_sim.tuning.knobs import POLICY
from pando_sim.tuning.score import Score
from pando_sim.tuning.space import Space, Values


class Changes(TypedDict):
    """Fields of `Findings`."""

    patch: str
    apply: str


def shown(points: Sequence[Point], front: Sequence[Point], plan: TunePlan) -> list[Shown]:
    return [_shown(one, plan, is_on_front=one in front) for one in points]


def _shown(point: Point, plan: TunePlan, *, is_on_front: bool) -> Shown:
    worst = point.worst
    return Shown(
        name=point.name,
        values=point.values,
        is_on_front=is_on_front,
        is_only_tried=plan.parts.has_excerpt and point.tried is None,
        searched=point.searched,
        tried=point.tried,
        judged=point.judged,
        varied=point.varied,
        worst=None if worst is None else worst[0],
    )


def contributions(
    space: Space, values: Values, tried: Score, without: Mapping[str, Score]
) -> list[Contribution]:
    """
    Args:
        values: of the recommended point, which has the score `tried`.
        without: scores of the point with one field each as it is today, by path.
    """
    words = {knob.path: knob.words for knob in space.knobs}
    return [
        Contribution(
            path=path,
            words=words[path],
            today=space.today[path],
            value=values[path],
            with_it=tried,
            without=score,
        )
        for path, score in without.items()
    ]


def policy_of(point: Point, plan: TunePlan) -> str | None:
    """The placement policy, if it was searched and differs from today's."""
    policy = point.values.get(POLICY)
    return None if policy in (None, plan.space.today.get(POLICY)) else str(policy)


def changes(point: Point, plan: TunePlan) -> Changes:
    """The patch, and the command that applies it; both empty if nothing changes."""
    patch = plan.space.patch(point.values)
    if not patch:
        return Changes(patch="", apply="")
    text, metadata = json.dumps(annotated(patch, plan.noted)), plan.planned.pool.metadata
    words = ["kubectl", "patch", "workerpool", metadata.name, "--namespace", metadata.namespace]
    return Changes(patch=text, apply=shlex.join([*words, "--type", "merge", "--patch", text]))
