"""How many replicas a pool is to have: `decide(snapshot, policy, now_s)`, pure and in plain words.

    snapshot = Snapshot(current=3, ready=3, signals=signals, start_s=42.0, history=history)
    decision = decide(snapshot, policy, now_s=time.time())
    history = decision.history
    if decision.desired != decision.current:
        ...  # carry it out, and remember that:
        history = history.scaled(now_s, decision.current, decision.desired, decision.by)

Read in this order:
    snapshot.py  what a decision looks at
    decide.py    from it and a policy to a number
    decision.py  what a decision says
    proposals/   how many replicas each signal asks for
    limits/      what a proposal may become
    history/     what decisions remember
    observe.py   what a look adds to that

The policy is a pool's `spec.scaling` itself. There is no I/O and no clock in here; a simulation
calls the same. A policy that is only looked at has a history of its own, without `scaled`.
"""

from pando_operator.scaling.decide import decide
from pando_operator.scaling.decision import By, Decision, Direction, Limit, Proposal
from pando_operator.scaling.history.history import History
from pando_operator.scaling.history.memory import from_status, to_status
from pando_operator.scaling.history.start_time import decided_at, learned_start_s, with_start
from pando_operator.scaling.snapshot import Signals, Snapshot

__all__ = [
    "By",
    "Decision",
    "Direction",
    "History",
    "Limit",
    "Proposal",
    "Signals",
    "Snapshot",
    "decide",
    "decided_at",
    "from_status",
    "learned_start_s",
    "to_status",
    "with_start",
]
