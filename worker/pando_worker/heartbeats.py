"""Heartbeats: their interval, and how they take up the scheduler's reports."""

from dataclasses import fields, replace

from pando_fleet.registry.replica import Heartbeat
from pando_worker.messages import Ready
from pando_worker.stats import Stats

MIN_INTERVAL_S = 0.05
MAX_INTERVAL_S = 0.5

_OF_HEARTBEATS = {field.name for field in fields(Heartbeat)}
_SHARED = {
    event: tuple(name for name in event.__struct_fields__ if name in _OF_HEARTBEATS)
    for event in (Ready, Stats)
}


def with_report(beat: Heartbeat, report: Ready | Stats) -> Heartbeat:
    """The heartbeat with the report's values in all fields of the same name."""
    return replace(beat, **{name: getattr(report, name) for name in _SHARED[type(report)]})
