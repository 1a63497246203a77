"""The trace of a simulation, as the settings play it, and its size."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pando.sim.errors import SimPlanError
from pando_fleet.images.rule import KINDS, ImageRule
from pando_sim.request import Request
from pando_sim.settings import SimSettings
from pando_sim.traces import Day, Reading, Shape, Trace, TraceError, open_trace, shaped
from pando_sim.traces.adapters import Popularity


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of the trace as it is played."""

    requests: int | None  # None: as many as its sessions send
    last_s: float  # the last arrival, if no client waited for an answer
    adapters: tuple[str, ...] = ()  # by name
    smallest_begin: int = 0  # of its sessions: tokens of a first call and its answer
    began_s: float | None = None  # Unix time; None: it has no times of day


def read_trace(settings: SimSettings) -> Trace:
    """Raises SimPlanError, TraceError."""
    reading = Reading(
        closed_loop=settings.closed_loop,
        answer_tokens_per_s=settings.answer_tokens_per_second,
        model=settings.trace_model,
        image_rule=_image_rule(settings),
        shared_tools=settings.shared_tools,
        strict=settings.strict,
    )
    if settings.tokenizer is not None:
        from pando_sim.traces.tokenizer import TextTokenizer  # loads numpy

        reading = replace(reading, tokenize=TextTokenizer(settings.tokenizer))
    return open_trace([Path(name) for name in settings.trace], reading)


def _image_rule(settings: SimSettings) -> ImageRule | None:
    """Raises SimPlanError."""
    if settings.image_rule is None:
        return None
    try:
        rule = msgspec.json.decode(settings.image_rule, type=ImageRule)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise SimPlanError(f"image_rule is not a rule: {error}") from error
    if not rule.tokens_of(None) and not (rule.sounds and rule.sounds.tokens):
        known = ", ".join(KINDS)
        raise SimPlanError(
            f"image_rule gives an image no tokens; its kinds are {known}, each with fields of its"
            " own (docs/vision.md), beside `sounds` for audio (docs/traces.md)"
        )
    return rule


def shape_of(settings: SimSettings) -> Shape:
    """How the settings change the trace."""
    day = None
    if settings.day_hours is not None:
        day = Day(
            hours=settings.day_hours,
            trough=settings.day_trough,
            bursts=settings.day_bursts,
            burst_factor=settings.day_burst_factor,
            burst_s=settings.day_burst_seconds,
            seed=settings.seed,
        )
    adapters = None
    if settings.adapters:
        adapters = Popularity(
            adapters=settings.adapters, exponent=settings.adapter_zipf, seed=settings.seed
        )
    return Shape(
        take=settings.take,
        repeat=settings.repeat,
        speed=settings.speed,
        day=day,
        adapters=adapters,
    )


def extent_of(
    settings: SimSettings, trace: Trace, shape: Shape, read: Callable[[Request], None]
) -> Extent:
    """`read` is called with each request, as it is played. Raises TraceError if there is none."""
    if settings.sessions is None:
        return _of_requests(trace, shape, read)
    return _of_sessions(settings, trace)


def _of_requests(trace: Trace, shape: Shape, read: Callable[[Request], None]) -> Extent:
    requests, last_s, adapters = 0, 0.0, set[str]()
    for request in shaped(trace, shape):
        read(request)
        requests, last_s = requests + 1, request.at_s
        adapters.add(request.adapter)
    if not requests:
        model = trace.reading.model
        whose = f" for --trace-model {model!r}" if model is not None else ""
        raise _nothing(trace, f"request{whose}")
    names = sorted(adapters - {""}) if shape.adapters is None else shape.adapters.names
    began_s = trace.began_s() if shape.keeps_hours else None
    return Extent(requests, last_s, tuple(names), began_s=began_s)


def _of_sessions(settings: SimSettings, trace: Trace) -> Extent:
    begins = (session.conversations[0].calls[0] for session in trace.sessions())
    smallest = min((one.prompt.num_tokens + one.output_tokens for one in begins), default=None)
    if smallest is None:
        raise _nothing(trace, "session")
    return Extent(None, 3600 * settings.session_hours, smallest_begin=smallest)


def _nothing(trace: Trace, of_what: str) -> TraceError:
    first = trace.unplayed.first
    why = f"; none of its lines can be played, the first one is {first}" if first else ""
    return TraceError(trace.paths[0], None, f"has no {of_what}{why}")
