"""Compares a recorded period with its replay, before anybody believes what a replay advises.

Read in this order:
    recorded.py   what a recording measured
    replayed.py   the same of a run
    proof.py      both side by side, and what the simulator cannot predict
    measures.py   the numbers of each
    workers.py    the cost model of a recording's workers

    before = recorded(paths, model="llama").measures
    proof = prove(before, replayed(run, skip_s=before.skip_s))
    if not proof.holds: print(*proof.failures, sep="\\n")
"""

from pando_sim.proof.measures import Measures
from pando_sim.proof.proof import Proof, prove
from pando_sim.proof.recorded import Period, recorded
from pando_sim.proof.replayed import replayed

__all__ = ["Measures", "Period", "Proof", "prove", "recorded", "replayed"]
