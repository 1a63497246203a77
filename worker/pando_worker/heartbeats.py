"""What a scheduler says of itself, as a heartbeat tells it."""

from dataclasses import fields, replace

from pando_fleet.registry.replica import Heartbeat
from pando_worker.messages import Ready, Stats

_OF_HEARTBEATS = {field.name for field in fields(Heartbeat)}
_CARRIED = {
    said: tuple(name for name in said.__struct_fields__ if name in _OF_HEARTBEATS)
    for said in (Ready, Stats)
}


def carrying(beat: Heartbeat, said: Ready | Stats) -> Heartbeat:
    """The heartbeat with all that the scheduler said in fields of the same name."""
    return replace(beat, **{name: getattr(said, name) for name in _CARRIED[type(said)]})
