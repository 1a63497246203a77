"""`Knob`: a field that may be searched, with the range in which it makes sense.

Paths are those of the manifest below `spec`; `policy` alone is the router's setting, which a
WorkerPool does not have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pando_sim.policies import pando
from pando_sim.tuning.goal import Goal

Value = float | str | None
"""None: the field is left out, which turns off what it is for."""

POLICY = "policy"
SCALING = "scaling."
ENGINE = "engine."
IN_ENGINE = ("maxTotalTokens", "hostMemoryGib", "chunkedPrefillSize", "maxRunningRequests")
"""Fields of `spec.engine` that are searched only if a range is given."""


class KnobError(Exception):
    """A field cannot be searched; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    path: str
    words: str  # what turning it does, for a sentence
    low: float = 0.0
    high: float = 0.0
    is_whole: bool = False
    is_log: bool = False
    may_be_off: bool = False
    needs: tuple[str, ...] = ()  # paths of knobs; without any of them it does nothing
    tries: tuple[float, ...] = ()  # values that are tried first, each alone
    choices: tuple[str, ...] = ()  # instead of numbers
    in_list: str = ""  # the path of a `ListField` that it makes, with others
    default: Value = None  # in a list: its value, if no other one is tried
    only_if_asked: bool = False

    def rounded(self, value: float) -> float:
        """As a person would write it: two or three digits."""
        if self.is_whole:
            least = round(value)
            return least if least < 100 else round(value, 1 - len(str(least)) + 1)
        return float(f"{value:.2g}")

    def place(self, value: float) -> float:
        """Where a value is in the range, from 0 to 1."""
        if self.high <= self.low:
            return 0.0
        if self._has_ratios:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def at(self, place: float) -> float:
        """The rounded value at a place from 0 to 1."""
        if self._has_ratios:
            return float(self.rounded(self.low * (self.high / self.low) ** place))
        return float(self.rounded(self.low + (self.high - self.low) * place))

    @property
    def _has_ratios(self) -> bool:
        return self.is_log and self.low > 0

    def covering(self, value: Value) -> "Knob":
        """The same knob with a range that has this value in it, too."""
        if value is None or isinstance(value, str):
            return self
        return replace(self, low=min(self.low, value), high=max(self.high, value))


def scaling_knobs(goal: Goal, most_replicas: int) -> tuple[Knob, ...]:
    """What is searched unless it is said: the fields of `spec.scaling` that decide when and how
    fast a pool changes."""
    return (
        Knob(
            path="scaling.target.pressure",
            words="the load that the pool aims for",
            low=0.15,
            high=0.95,
            tries=(0.2, 0.35, 0.5, 0.85),
        ),
        Knob(
            path="scaling.minReplicas",
            words="the fewest replicas",
            low=1,
            high=most_replicas,
            is_whole=True,
            tries=(2, most_replicas) if most_replicas > 2 else (),
        ),
        Knob(
            path="scaling.target.queueWaitSeconds",
            words="growth when requests wait",
            low=goal.ttft_s / 10,
            high=goal.ttft_s * 2,
            is_log=True,
            may_be_off=True,
            tries=(goal.ttft_s / 2,),
        ),
        Knob(
            path="scaling.target.ttftSeconds",
            words="the size predicted for a time to first token",
            low=goal.ttft_s / 4,
            high=goal.ttft_s * 2,
            is_log=True,
            may_be_off=True,
            tries=(goal.ttft_s,),
        ),
        Knob(
            path="scaling.target.interTokenSeconds",
            words="the size predicted for a time between tokens",
            low=goal.gap_s / 2,
            high=goal.gap_s * 1.5,
            is_log=True,
            may_be_off=True,
        ),
        Knob(
            path="scaling.target.hotEvictionsPerSecond",
            words="growth when caches evict what is needed again",
            low=30,
            high=10_000,
            is_log=True,
            is_whole=True,
            may_be_off=True,
        ),
        Knob(path="scaling.tolerance", words="what is too small a change", low=0.0, high=0.3),
        Knob(
            path="scaling.windowSeconds",
            words="the window over which signals are averaged",
            low=5,
            high=180,
            is_log=True,
            is_whole=True,
        ),
        Knob(
            path="scaling.behavior.scaleUp.stabilizationWindowSeconds",
            words="the wait before growing",
            low=0,
            high=120,
            is_whole=True,
        ),
        Knob(
            path="scaling.behavior.scaleDown.stabilizationWindowSeconds",
            words="the wait before shrinking",
            low=15,
            high=3600,
            is_log=True,
            is_whole=True,
            tries=(60, 1200),
        ),
        Knob(
            path="scaling.panic.threshold",
            words="fast growth on a sudden rise",
            low=1.2,
            high=4.0,
            may_be_off=True,
            tries=(2.0,),
        ),
        Knob(
            path="scaling.panic.windowSeconds",
            words="the short window of panic",
            low=3,
            high=30,
            is_whole=True,
            needs=("scaling.panic.threshold",),
        ),
    )


def asked_knob(text: str, known: Sequence[Knob]) -> Knob:
    """From `FIELD=LOW..HIGH`, or `policy=ONE+OTHER`. Raises KnobError."""
    name, equals, values = text.partition("=")
    if not equals:
        raise KnobError(f"--search {text!r}: must be FIELD=LOW..HIGH, such as {_EXAMPLE}")
    if name == POLICY:
        return _policies(text, values)
    knob = next((one for one in known if one.path in (name, SCALING + name)), None)
    if knob is None and name.removeprefix(ENGINE) in IN_ENGINE and name.startswith(ENGINE):
        knob = Knob(path=name, words="", is_whole=name != "engine.hostMemoryGib")
    if knob is None:
        fields = [one.path.removeprefix(SCALING) for one in known]
        fields += [*(ENGINE + field for field in IN_ENGINE), POLICY]
        raise KnobError(
            f"--search {text!r}: there is no field {name}; there are " + ", ".join(fields)
        )
    low_text, dots, high_text = values.partition("..")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        dots = ""
    if not dots or not low < high:
        raise KnobError(f"--search {text!r}: must be FIELD=LOW..HIGH with LOW below HIGH")
    is_log = low > 0 and high / low >= 10
    tries = tuple(value for value in knob.tries if low <= value <= high)
    default = knob.default
    if isinstance(default, float):
        default = min(max(default, low), high)
    return replace(knob, low=low, high=high, is_log=is_log, tries=tries, default=default)


_EXAMPLE = "engine.maxTotalTokens=50000..120000"


def _policies(text: str, values: str) -> Knob:
    own = [kind.name for kind in pando.own()]
    names = tuple(dict.fromkeys(own if values == "all" else values.split("+")))
    for name in names:
        if name not in own:
            raise KnobError(
                f"--search {text!r}: there is no policy {name!r} of Pando's; there are "
                + ", ".join(own)
            )
    if len(names) < 2:
        raise KnobError(f"--search {text!r}: name at least two policies")
    return Knob(path=POLICY, words="the placement policy of the routers", choices=names)
