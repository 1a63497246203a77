"""Knative's panic mode: a sudden rise is measured over a short window, and nothing shrinks in it.

Panic begins when the size wanted over the panic window is `threshold` times the ready replicas. It
keeps the largest size wanted since then, and ends when the threshold was not reached for the length
of the stable window.
https://knative.dev/docs/serving/autoscaling/kpa-specific/
"""

from dataclasses import replace

from pando_operator.scaling.decision import Proposal
from pando_operator.scaling.history.demand import demand_of
from pando_operator.scaling.history.history import History
from pando_operator.scaling.proposals.sizing import View

PANIC = "panic"


def by_panic(view: View, stable: int) -> tuple[Proposal | None, History]:
    """The proposal, or None without panic, and the history that remembers the panic.

    Args:
        stable: the largest size that the other proposals want.
    """
    panic, history = view.policy.panic, view.history
    demand = demand_of(history.samples, panic.window_seconds) if panic else None
    if panic is None or demand is None or not history.capacity_tokens:
        return None, replace(history, panic_at_s=None, panic_replicas=0)
    ready = max(1, view.snapshot.ready)
    wanted = view.replicas_for(view.needed_tokens(demand))
    is_over = wanted / ready >= panic.threshold
    if is_over:
        history = replace(history, panic_at_s=view.now_s)
    elif history.panic_at_s is None or view.now_s - history.panic_at_s > view.policy.window_seconds:
        return None, replace(history, panic_at_s=None, panic_replicas=0)
    most = max(wanted, history.panic_replicas, view.current)
    why = (
        f"{wanted / ready:.1f} times the ready replicas"
        if is_over
        else "and was lower for less than the stable window"
    )
    words = f"panic: demand of {panic.window_seconds} s wants {wanted}, {why}"
    return Proposal(PANIC, most, f"{words}; nothing shrinks: wants {most}"), replace(
        history, panic_replicas=max(most, stable)
    )
