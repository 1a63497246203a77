"""Makes a trace longer, shorter, faster, or a day, and gives its requests adapters.

All of these keep the order of requests and whole conversations. There is no sampling, because a
part of the requests shares less than all of them, and would make every cache look worse.

At another speed requests arrive closer together or farther apart. The pause between an answer and
the request that waited for it stays, because people or tools cause it. Such a request never arrives
before its time in the trace.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TYPE_CHECKING, cast

from pando_sim.request import Request
from pando_sim.traces.adapters import Popularity, with_adapters
from pando_sim.traces.day import Day, through

if TYPE_CHECKING:
    from pando_sim.traces.prompts import TracePrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Applied in this order: the first `take` requests, `repeat` times, `speed` times as fast; or,
    with a `day`, as often as needed; then the `adapters`."""

    take: int | None = None
    repeat: int = 1
    speed: float = 1.0
    day: Day | None = None
    adapters: Popularity | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.take is not None and self.take < 1:
            raise ValueError(f"take is {self.take}, but must be at least 1")
        if self.repeat < 1:
            raise ValueError(f"repeat is {self.repeat}, but must be at least 1")
        if self.speed <= 0:
            raise ValueError(f"speed is {self.speed:g}, but must be above 0")
        if self.day is not None and self.repeat != 1:
            raise ValueError("a day repeats the trace as often as needed: repeat must be 1")

    @property
    def keeps_hours(self) -> bool:
        """Whether a request still comes at the time of day at which the trace has it."""
        return self.speed == 1.0 and self.repeat == 1 and self.day is None


def shaped(trace: Iterable[Request], shape: Shape) -> Iterator[Request]:
    """`trace` is iterated several times if it is repeated."""
    requests = repeated(trace, shape.take, None if shape.day is not None else shape.repeat)
    if shape.speed != 1.0:
        requests = (replace(request, at_s=request.at_s / shape.speed) for request in requests)
    if shape.day is not None:
        requests = through(shape.day, requests)
    return requests if shape.adapters is None else with_adapters(requests, shape.adapters)


def repeated(trace: Iterable[Request], take: int | None, times: int | None) -> Iterator[Request]:
    """The trace's first requests, `times` times one after the other; None: without end.

    From the second time on these are new conversations: only what lasts through the whole trace
    (see `lasting`) is the same in their prompts. So a cache finds in each pass what it would find
    in the first, and the system prompts.
    """
    from pando_sim.traces.lasting import Lasting  # loads numpy, as the reader of the trace does

    lasting = Lasting()
    number, last_s = -1, 0.0
    for request in islice(trace, take):
        if times != 1:
            lasting.add(_prompt(request).path(), request.at_s)
        number, last_s = request.number, request.at_s
        yield request
    requests = number + 1
    if times == 1 or not requests:
        return
    lasting.end(last_s)
    # The passes are also separated by the mean time between two requests.
    period_s = last_s + (last_s / number if last_s else 1.0)
    for again in count(1) if times is None else range(1, times):
        for request in islice(trace, take):
            prompt = _prompt(request)
            yield replace(
                request,
                number=request.number + again * requests,
                at_s=request.at_s + again * period_s,
                prompt=prompt.renewed(lasting.kept(prompt.path()), again),
                session=f"{request.session}/{again}" if request.session else "",
                after=None if request.after is None else request.after + again * requests,
            )


def _prompt(request: Request) -> "TracePrompt":
    """All readers of traces make such prompts."""
    return cast("TracePrompt", request.prompt)
