"""`decide`: computes the number of replicas from a snapshot and a policy, with its reason in words.

The largest proposal wins; `Limiter` then applies the limits to it.
"""

from pando_operator.resource.policy import ScalingPolicy
from pando_operator.scaling.decision import Decision, Proposal
from pando_operator.scaling.history.history import History
from pando_operator.scaling.limits.bounds import Bounds, bounds_of
from pando_operator.scaling.limits.budget import spent
from pando_operator.scaling.limits.limiter import Limiter
from pando_operator.scaling.observe import fresh_beats, is_blind, observed, problem_of
from pando_operator.scaling.proposals import PROPOSERS
from pando_operator.scaling.proposals.idle import is_idle, to_zero
from pando_operator.scaling.proposals.latency import unmet
from pando_operator.scaling.proposals.panic import by_panic
from pando_operator.scaling.proposals.sizing import View
from pando_operator.scaling.snapshot import Snapshot

LOOK_BACK = 1.1
"""Samples are kept for this many start times, so that they show the growth over a whole one."""


def decide(
    snapshot: Snapshot, policy: ScalingPolicy, now_s: float, hour_s: float | None = None
) -> Decision:
    """How many replicas the pool should have now. Never raises.

    The caller carries the number out at once. Draining continues meanwhile: `snapshot.current`
    does not count replicas that leave.

    `hour_s`: the Unix time by which schedules go, if that is not `now_s`: a simulation may jump
    from one hour of a trace to another.
    """
    view, problem = _view(snapshot, policy, now_s), problem_of(snapshot)
    bounds = bounds_of(view, now_s if hour_s is None else hour_s)
    proposals, history = _proposals(view, bounds, problem)
    best = max(proposals, key=lambda proposal: proposal.replicas, default=None)
    wanted = best.replicas if best else snapshot.current
    limiter = Limiter(view, proposals, best, wanted)
    limiter.hold_without_signals(problem)
    limiter.keep_the_silent()
    limiter.keep_the_rest_under_target()
    history = history.recommended(now_s, limiter.replicas)
    limiter.stabilize(history)
    limiter.bound_rate()
    limiter.bound(bounds, may_shrink=not problem)
    return Decision(
        desired=limiter.replicas,
        current=snapshot.current,
        wanted=wanted,
        by=best.by if best else None,
        limited_by=limiter.limited_by if limiter.replicas != wanted else None,
        reason="; ".join(
            [best.reason if best else _nothing(view, problem), *unmet(view), *limiter.notes]
        ),
        proposals=proposals,
        pressure=view.pressure,
        signals_ok=not problem,
        problem=problem,
        history=history,
    )


def _view(snapshot: Snapshot, policy: ScalingPolicy, now_s: float) -> View:
    kept_s = max(policy.window_seconds, LOOK_BACK * (snapshot.start_s or 0.0))
    history = observed(snapshot, policy.window_seconds, kept_s, now_s)
    history = spent(history, policy.budget, snapshot.current + snapshot.draining, now_s)
    return View(snapshot, policy, history, fresh_beats(snapshot.signals), now_s)


def _proposals(view: View, bounds: Bounds, problem: str) -> tuple[tuple[Proposal, ...], History]:
    if is_blind(view.snapshot):
        return (), view.history
    # Without ready replicas missing signals do not matter: routers report whether requests wait.
    if is_idle(view, bounds.fewest) and (not problem or not view.snapshot.ready):
        return (to_zero(view),), view.history
    proposals = tuple(proposal for propose in PROPOSERS if (proposal := propose(view)))
    stable = max((proposal.replicas for proposal in proposals), default=view.current)
    panic, history = by_panic(view, stable)
    # Panic is first, so that it gives the reason among equal sizes.
    return ((panic, *proposals) if panic else proposals), history


def _nothing(view: View, problem: str) -> str:
    """Why there was no proposal."""
    if problem:
        return f"{problem}: nothing changes"
    if view.current:
        return "no replica has reported its capacity yet"
    return "asleep: no request waits"
