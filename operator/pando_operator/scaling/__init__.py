"""Decides how many replicas a pool should have: `decide(snapshot, policy, now_s)`; pure.

    snapshot = Snapshot(current=3, ready=3, signals=signals, start_s=42.0, history=history)
    decision = decide(snapshot, policy, now_s=time.time())
    history = decision.history
    if decision.desired != decision.current:
        ...  # carry it out, then record it:
        history = history.scaled(now_s, decision.current, decision.desired, decision.by)

Read in this order:
    snapshot.py  the input of a decision
    decide.py    computes the number of replicas
    decision.py  the result of a decision
    proposals/   how many replicas each signal asks for
    limits/      limits on a proposal
    history/     what decisions remember
    observe.py   adds an observation to the history
    sharing.py   shares GPUs among pools, after each has decided

The policy is a pool's `spec.scaling` itself. There is no I/O and no clock here, so the simulator
runs the same code. A shadow policy has its own history, without `scaled`.
"""

from pando_operator.scaling.decide import decide
from pando_operator.scaling.decision import Decision, Direction, Limit, Proposal
from pando_operator.scaling.history.history import History
from pando_operator.scaling.history.memory import from_status, to_status
from pando_operator.scaling.history.start_time import (
    decided_at,
    late_after_s,
    learned_start_s,
    with_start,
)
from pando_operator.scaling.sharing import Claim, Grant, grants
from pando_operator.scaling.snapshot import Signals, Snapshot

__all__ = [
    "Claim",
    "Decision",
    "Direction",
    "Grant",
    "History",
    "Limit",
    "Proposal",
    "Signals",
    "Snapshot",
    "decide",
    "decided_at",
    "from_status",
    "grants",
    "late_after_s",
    "learned_start_s",
    "to_status",
    "with_start",
]
