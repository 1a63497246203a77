"""How many replicas each signal asks for.

Read in this order:
    sizing.py    converts tokens to replicas, for every proposal
    pressure.py  KV pressure, and its growth
    waits.py     queue waits and hot evictions: signals that a pool is too small
    latency.py   targets of latency, by a queueing model
    panic.py     reacts to a sudden rise
    idle.py      scales to zero, and back

To add a signal, copy waits.py and list its function in `PROPOSERS`; its target is a field of
`Target` in `resource/policy.py`. Pure. `decide.py` takes the largest proposal. It asks panic and
idle itself, because limits treat these two otherwise.
"""

from collections.abc import Callable

from pando_operator.scaling.decision import Proposal
from pando_operator.scaling.proposals.idle import to_wake
from pando_operator.scaling.proposals.latency import by_inter_token, by_ttft
from pando_operator.scaling.proposals.pressure import by_growth, by_pressure
from pando_operator.scaling.proposals.sizing import View
from pando_operator.scaling.proposals.waits import by_hot_evictions, by_queue_wait

# Among equal sizes, the first gives the reason.
PROPOSERS: tuple[Callable[[View], Proposal | None], ...] = (
    to_wake,
    by_pressure,
    by_growth,
    by_queue_wait,
    by_hot_evictions,
    by_ttft,
    by_inter_token,
)
