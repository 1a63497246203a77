"""Rate policies of `behavior`: so many replicas, or percent of them, within a period.

They are searched only if asked: the defaults let a pool double, or lose all that it may, in 15 s,
and windows and targets say when it does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pando_sim.tuning.knobs import Knob, Value

DIRECTIONS = {"scaleUp": "growth", "scaleDown": "shrinking"}
PERIOD_S = 60.0


@dataclass(frozen=True, slots=True)
class RatePolicies:
    """The `ListField` of one direction. With both kinds of policies the one counts that allows
    more, unless the manifest has another `selectPolicy`."""

    direction: str  # a key of DIRECTIONS

    @property
    def path(self) -> str:
        return f"scaling.behavior.{self.direction}.policies"

    def knobs(self, most_replicas: int) -> tuple[Knob, ...]:
        what = DIRECTIONS[self.direction]
        pods, percent = f"{self.path}.pods", f"{self.path}.percent"
        return (
            Knob(
                path=pods,
                words=f"{what} by so many replicas in a period",
                low=1,
                high=most_replicas,
                is_whole=True,
                may_be_off=True,
                in_list=self.path,
                only_if_asked=True,
            ),
            Knob(
                path=percent,
                words=f"{what} by such a share of the replicas in a period",
                low=10,
                high=200 if self.direction == "scaleUp" else 100,
                is_log=True,
                is_whole=True,
                may_be_off=True,
                in_list=self.path,
                only_if_asked=True,
            ),
            Knob(
                path=f"{self.path}.periodSeconds",
                words=f"the period of {what}",
                low=15,
                high=600,
                is_log=True,
                is_whole=True,
                needs=(pods, percent),
                default=PERIOD_S,
                in_list=self.path,
                only_if_asked=True,
            ),
        )

    def made(self, values: Mapping[str, Value]) -> list[dict[str, Any]] | None:
        period = values.get(f"{self.path}.periodSeconds") or PERIOD_S
        found = []
        for kind in ("Pods", "Percent"):
            value = values.get(f"{self.path}.{kind.lower()}")
            if value is not None:
                found.append({"type": kind, "value": int(value), "periodSeconds": int(period)})
        return found or None


RATES = tuple(map(RatePolicies, DIRECTIONS))
