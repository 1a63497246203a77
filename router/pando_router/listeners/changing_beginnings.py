"""Reports prompts that find nothing in caches because of a few bytes near their beginning: a time,
a number, or a build that an agent writes anew for every call. Such a prompt has the text of an
earlier one before and after those bytes.

Only long prompts of which no replica has the beginning are looked at, and of each tenant and model
at most one per `EVERY_S`. No text of a prompt is logged.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.core.route import Route
from pando_router.dashboard.events import FleetEvents
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics

EARLY_BYTES = 4096
"""A prompt of which more is found has lost little."""

LONG_BYTES = 4 * EARLY_BYTES
"""A shorter prompt has little to lose."""

EVERY_S = 0.1
"""Between two comparisons of one tenant's prompts to a model."""

TIMES = 5
"""So many prompts differ at one place before it is reported."""

REPORT_S = 600.0

_PROBE_BYTES = 64
_PROBES = range(CHUNK_BYTES, LONG_BYTES - EARLY_BYTES - _PROBE_BYTES, 1024)  # after the difference
_NEAR_BYTES = 64  # two changing numbers may begin alike
_KEPT_PROMPTS = 4  # of a tenant and model, as its applications take turns
_KEPT_PLACES = 8
_KEPT_PAIRS = 256  # of a tenant and a model; 16 MiB


def first_difference(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def is_same_after(one: bytes, other: bytes, place: int) -> bool:
    """Whether most of `one` from this place on is somewhere in `other` from this place on."""
    probes = [one[place + at : place + at + _PROBE_BYTES] for at in _PROBES]
    whole = [probe for probe in probes if len(probe) == _PROBE_BYTES]
    return 2 * sum(other.find(probe, place) >= 0 for probe in whole) > len(whole) > 0


@dataclass(slots=True)
class Beginnings:
    """The beginnings of one tenant's last prompts to a model, and where they differed."""

    looked_s: float = float("-inf")
    prompts: deque[bytes] = field(default_factory=lambda: deque(maxlen=_KEPT_PROMPTS))
    places: OrderedDict[int, int] = field(default_factory=OrderedDict)  # byte: times

    def differs(self, prompt: bytes) -> tuple[int, int] | None:
        """The byte from which the prompt differs from an earlier one that otherwise has the same
        text, and how often prompts did; None if there is no such one. Keeps the prompt."""
        found = None
        for number, earlier in enumerate(self.prompts):
            place = first_difference(earlier, prompt)
            if place < EARLY_BYTES and is_same_after(earlier, prompt, place):
                found = self._count(place)
                del self.prompts[number]
                break
        self.prompts.append(prompt)
        return found

    def _count(self, place: int) -> tuple[int, int]:
        """Its lowest byte that was seen, and the times with this one."""
        near = next((one for one in self.places if abs(one - place) < _NEAR_BYTES), place)
        times, lowest = self.places.pop(near, 0) + 1, min(near, place)
        self.places[lowest] = times
        if len(self.places) > _KEPT_PLACES:
            self.places.popitem(last=False)
        return lowest, times


class ChangingBeginnings(Listener):
    def __init__(
        self, metrics: Metrics, events: FleetEvents, clock: Callable[[], float] = monotonic
    ) -> None:
        self._metrics = metrics
        self._events = events
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], Beginnings] = OrderedDict()
        self._log = BoundedLog("prompts differ early, so caches do not help", every_s=REPORT_S)

    def placed(self, exchange: Exchange, route: Route) -> None:
        order, placement = exchange.order, route.placement
        if order is None or len(order.prompt.request.prefix) < LONG_BYTES:
            return
        if (
            placement is None
            or placement.chosen.most_chunks * CHUNK_BYTES >= EARLY_BYTES
            or exchange.tries > 1
        ):
            return
        tenant, model = exchange.tenant.name, order.prompt.targets[0].model
        known = self._of(tenant, model)
        now = self._clock()
        if now - known.looked_s < EVERY_S:
            return
        known.looked_s = now
        found = known.differs(order.prompt.request.prefix[:LONG_BYTES])
        if found is not None and found[1] >= TIMES:
            byte, times = found
            self._metrics.changing_beginnings.labels(model).inc()
            self._log(f"{tenant}/{model}", tenant=tenant, model=model, byte=byte)
            if times == TIMES:
                self._events.differed(tenant, model, byte)

    def _of(self, tenant: str, model: str) -> Beginnings:
        known = self._known.pop((tenant, model), None) or Beginnings()
        self._known[tenant, model] = known
        if len(self._known) > _KEPT_PAIRS:
            self._known.popitem(last=False)
        return known
