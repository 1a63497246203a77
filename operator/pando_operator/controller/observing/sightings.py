"""`Sightings`: since when each pod is in a state, by this operator's own clock.

Annotations have the time of the operator that wrote them, and conditions that of a node. An age
computed from them is wrong by the difference of two clocks: a drain would end at once, with streams
running, or late. So an age begins when this operator first sees the state; after a change of the
leader it begins again, which only makes a wait longer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pando_operator.lifecycle.pods import PodView

_State = tuple[str, str, object]
"""The pod's uid, the field of `PodView` with the time, and a value that changes if the state begins
again."""


class Sightings:
    """Of one pool. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: Mapping[_State, float] = {}

    def dated(self, pods: Sequence[PodView], now: float) -> list[PodView]:
        """The pods with the times, in seconds since 1970, at which their states were first seen."""
        clock, states = self._clock(), [_states(pod) for pod in pods]
        seen = {state for each in states for state in each}
        self._since = {state: self._since.get(state, clock) for state in seen}
        dated = []
        for pod, each in zip(pods, states, strict=True):
            times: dict[str, Any] = {s[1]: now - (clock - self._since[s]) for s in each}
            dated.append(replace(pod, **times))
        return dated


def _states(pod: PodView) -> list[_State]:
    stays = pod.is_alive and pod.draining_since is None and not pod.stalled
    is_silent = pod.is_serving and pod.heard is False and not pod.requests
    is_joining = stays and pod.containers_ready and not pod.gate
    holds = {
        "draining_since": pod.draining_since,
        "ready_since": pod.ready_since,
        "deleting_since": pod.deleting or None,
        "silent_since": is_silent or None,
        "unready_since": (stays and not pod.is_serving) or None,
        "joining_since": is_joining or None,
    }
    return [(pod.uid, field, mark) for field, mark in holds.items() if mark is not None]
