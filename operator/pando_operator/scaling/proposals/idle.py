"""Scales to zero replicas after a long time without requests, and back when a request waits."""

from pando_operator.scaling.decision import Proposal
from pando_operator.scaling.proposals.sizing import View

IDLE = "idle"
WAKE = "wake"


def is_idle(view: View, fewest: int) -> bool:
    """Whether the pool may sleep: no request was seen for `idleSeconds`."""
    idle_s, last_s = view.policy.idle_seconds, view.history.last_busy_s
    return (
        fewest == 0 and idle_s is not None and last_s is not None and view.now_s - last_s >= idle_s
    )


def to_zero(view: View) -> Proposal:
    # No time for a pool that already sleeps: its status would change, and be written, for ever.
    if not view.current:
        return Proposal(IDLE, 0, f"asleep: no request for {view.policy.idle_seconds} s or longer")
    passed_s = view.now_s - (view.history.last_busy_s or 0.0)
    words = f"no request for {passed_s:.0f} s, idleSeconds {view.policy.idle_seconds}"
    if (since_s := view.history.starting_since_s) is not None:
        words += f", and no replica was ready in {view.now_s - since_s:.0f} s"
    return Proposal(IDLE, 0, f"{words}: wants 0")


def to_wake(view: View) -> Proposal | None:
    """One replica if any request waits; pressure asks for more later."""
    signals = view.snapshot.signals
    if view.current or signals is None or not signals.queued.requests:
        return None
    queued = signals.queued
    requests = f"{queued.requests} request{'' if queued.requests == 1 else 's'}"
    waited_s = queued.waited_ms / 1000
    return Proposal(WAKE, 1, f"{requests} waiting for {waited_s:.1f} s wake the pool")
