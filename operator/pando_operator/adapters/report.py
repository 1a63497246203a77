"""Each adapter's line in the status, such as "Ready 3/4: llama-x2: no space left on device"."""

from collections.abc import Iterator, Sequence

from pando_operator.adapters.calls import Outcome, Unload
from pando_operator.adapters.plan import Plan
from pando_operator.adapters.progress import AdaptersView, Known, Progress
from pando_operator.adapters.replicas import HostReplica
from pando_operator.resource.adapters import STATE_CHARS, AdapterStatus


def rows(plan: Plan) -> tuple[AdapterStatus, ...]:
    """The adapters of the spec in its order, then those that are being removed."""
    there = [_row(one) for one in plan.progress]
    names = {one.name for one in there}
    removed = [
        _removed(name, known, plan.view)
        for name, known in sorted(plan.known.items())
        if name not in names
    ]
    return (*there, *removed)


def summary(rows: Sequence[AdapterStatus]) -> str:
    """For `kubectl get`: adapters that all replicas have, of those in the spec."""
    wanted = [row for row in rows if not row.removing]
    return f"{sum(row.is_everywhere for row in wanted)}/{len(wanted)}" if wanted else ""


def served(rows: Sequence[AdapterStatus]) -> list[str]:
    """The adapters that requests may wait for: those of the spec, without those that fail and that
    no replica has."""
    return [row.name for row in rows if not row.removing and (row.ready or not row.failing)]


def _row(one: Progress) -> AdapterStatus:
    ready = len(one.on)
    troubles = list(_troubles(one))
    return AdapterStatus(
        name=one.adapter.name,
        source=one.adapter.source,
        identity=one.identity,
        ready=ready,
        replicas=len(one.replicas),
        failing=any(replica.answers for replica, _ in troubles),
        state=_state(
            f"Ready {ready}/{len(one.replicas)}",
            [f"{replica.name}: {why}" for replica, why in troubles],
        ),
    )


def _removed(name: str, known: Known, view: AdaptersView) -> AdapterStatus:
    having = [replica for replica in view.replicas if view.may_have(name, known, replica)]
    troubles = []
    for replica in having:
        last = view.attempt(name, replica)
        if last and last.error and isinstance(last.call, Unload):
            troubles.append(f"{replica.name}: {last.error}")
    return AdapterStatus(
        name=name,
        source=known.source,
        identity=known.identity,
        replicas=len(having),
        removing=True,
        failing=bool(troubles),
        state=_state(f"Removing, still on {len(having)}/{len(view.replicas)}", troubles),
    )


def _troubles(one: Progress) -> Iterator[tuple[HostReplica, str]]:
    for replica in one.missing():
        if why := _trouble(one, replica):
            yield replica, why


def _trouble(one: Progress, replica: HostReplica) -> str:
    """Why the replica lacks the adapter; "" if it only takes time."""
    if not replica.answers:
        return "it is silent, or its engine has stalled" if replica.incarnation else ""
    if not replica.slots:
        return "it takes no adapters: its release has none, or its engine.maxLoras was 0"
    if one.differs_on(replica):
        return "its source has other weights here: give new weights a new source"
    if (failure := one.view.failure(one.adapter, replica)) is not None:
        return failure.error
    last = one.view.attempt(one.adapter.name, replica)
    if last is not None and last.outcome is Outcome.DONE and last.count > 1:
        return "it loaded the adapter, but its heartbeats do not show that"
    return ""


def _state(text: str, troubles: Sequence[str]) -> str:
    if troubles:
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        room = STATE_CHARS - len(text) - len(": ") - len(more)
        first = troubles[0]
        text += f": {first if len(first) <= room else first[: room - 1] + '…'}{more}"
    return text
