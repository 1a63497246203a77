"""Plans the calls that bring each replica's adapters to what the spec says.

Each plan starts from heartbeats and from the calls of this operator, so a new operator, a new
replica and one that lost an adapter need no special case.

- A source that no replica has loaded yet is tried at one replica at a time. If it is broken, all
  others keep the weights that they serve.
- A loaded source goes to all replicas that have nothing under its name at once, but replaces other
  weights at one replica at a time. The replica finishes requests that run with the old ones.
- An adapter that was removed from the spec is unloaded everywhere. The replica finishes its
  requests first. After an operator that may have begun loads of it, that is each replica: an unload
  ends such a load.
- A replica loads one adapter at a time, and a pool MOST_LOADS. Unloads mostly wait for requests, so
  there may be more.
- A replica that leaves, is silent or has stalled gets no call; one that is joining does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import xxhash

from pando_operator.adapters.calls import (
    Attempt,
    Attempts,
    Call,
    CallTarget,
    Load,
    Outcome,
    Unload,
    delay_s,
)
from pando_operator.adapters.progress import AdaptersView, Known, Progress, learned
from pando_operator.adapters.replicas import HostReplica
from pando_operator.resource.adapters import Adapter

MOST_LOADS = 4
"""Loads of a pool at a time: they read from one hub or one volume."""

MOST_UNLOADS = 16
"""Unloads of a pool at a time."""

PRELOAD_LIMIT_S = 600.0
"""Longest time for which a replica that is otherwise ready waits for adapters."""


@dataclass(frozen=True, slots=True)
class Plan:
    calls: tuple[Call, ...]  # to make now
    dropped: frozenset[CallTarget]  # calls to end: their replicas leave, are gone or silent
    known: Mapping[str, Known]  # by name; to be remembered
    progress: tuple[Progress, ...]  # of each adapter of the spec
    waiting: frozenset[str]  # names of replicas that are not ready before they have adapters
    view: AdaptersView


def plan(
    adapters: Sequence[Adapter],
    known: Mapping[str, Known],
    replicas: Sequence[HostReplica],
    attempts: Attempts,
    now: float,
) -> Plan:
    """
    Args:
        adapters: of the spec.
        known: from the last plan, or from the status.
        replicas: those whose pods stay.
        attempts: the last call for each target, those that run included.
        now: by the clock of the attempts.
    """
    view = AdaptersView(replicas, attempts, now)
    known = learned(adapters, known, view)
    progress = tuple(Progress.of(one, known[one.name].identity, view) for one in adapters)
    wanted = {one.name for one in adapters}
    removed = [(name, was) for name, was in sorted(known.items()) if name not in wanted]
    return Plan(
        calls=(
            *_allowed_unloads(_unloads(removed, view), attempts),
            *_allowed_loads(_loads(progress), attempts),
        ),
        dropped=_dropped(view),
        known=known,
        progress=progress,
        waiting=frozenset(one.name for one in replicas if _waits(one, progress)),
        view=view,
    )


def _dropped(view: AdaptersView) -> frozenset[CallTarget]:
    there = {(one.name, one.incarnation) for one in view.replicas if one.takes_calls}
    running = (one.call.target for one in _running(view.attempts))
    return frozenset(one for one in running if (one.replica, one.incarnation) not in there)


def _unloads(removed: Sequence[tuple[str, Known]], view: AdaptersView) -> Iterator[Unload]:
    for replica in view.replicas:
        for name, known in removed:
            if view.may_have(name, known, replica) and replica.takes_calls:
                target = CallTarget(replica.name, replica.incarnation, name)
                call = Unload(target, replica.url, replica.token)
                if _is_due(call, view):
                    yield call


def _loads(progress: Sequence[Progress]) -> Iterator[Load]:
    # Pinned ones first, while there is room for them; then those that a new replica waits for.
    order = sorted(progress, key=lambda one: (not one.adapter.pin, not one.adapter.preload))
    for one in order:
        if one.missing():
            yield from _more(one) if one.identity else _first(one)


def _more(one: Progress) -> Iterator[Load]:
    """The due loads of an adapter that a replica has loaded already."""
    replacing = any(one.is_running_on(each) and one.replaces_on(each) for each in one.replicas)
    for replica in one.lacking():
        call = _load(one, replica)
        if not _is_due(call, one.view):
            continue
        if one.replaces_on(replica):
            if replacing:
                continue
            replacing = True
        yield call


def _first(one: Progress) -> Iterator[Load]:
    """The load of a source that no replica has loaded yet, where it failed least often."""
    if any(map(one.is_running_on, one.replicas)):
        return
    failed = one.failures()
    if failed:
        last_at = max(attempt.at for attempt in failed.values())
        if one.view.now < last_at + delay_s(sum(attempt.count for attempt in failed.values())):
            return

    def rank(call: Load) -> tuple[int, int]:
        replica, _, name = call.target
        last = failed.get(replica)
        # Adapters begin at different replicas.
        return last.count if last else 0, xxhash.xxh32_intdigest(f"{name} {replica}".encode())

    calls = (_load(one, replica) for replica in one.lacking())
    yield from sorted((call for call in calls if _is_due(call, one.view)), key=rank)[:1]


def _load(one: Progress, replica: HostReplica) -> Load:
    adapter = one.adapter
    target = CallTarget(replica.name, replica.incarnation, adapter.name)
    return Load(target, replica.url, replica.token, adapter.source, adapter.pin)


def _is_due(call: Call, view: AdaptersView) -> bool:
    last = view.attempts.get(call.target)
    if last is None:
        return True
    if last.outcome is Outcome.RUNNING:
        return False
    return last.call != call or view.now >= last.next_at


def _allowed_unloads(calls: Iterable[Unload], attempts: Attempts) -> Iterator[Unload]:
    running = sum(isinstance(one.call, Unload) for one in _running(attempts))
    yield from islice(calls, max(0, MOST_UNLOADS - running))


def _allowed_loads(calls: Iterable[Load], attempts: Attempts) -> Iterator[Load]:
    running = [one.call.target for one in _running(attempts) if isinstance(one.call, Load)]
    busy, left = {target.replica for target in running}, MOST_LOADS - len(running)
    for call in calls:
        if left > 0 and call.target.replica not in busy:
            busy.add(call.target.replica)
            left -= 1
            yield call


def _running(attempts: Attempts) -> Iterator[Attempt]:
    return (one for one in attempts.values() if one.outcome is Outcome.RUNNING)


def _waits(replica: HostReplica, progress: Sequence[Progress]) -> bool:
    """Whether a joining replica is not ready before it has an adapter."""
    if not replica.joining or replica.joining_s >= PRELOAD_LIMIT_S:
        return False
    if replica.answers and not replica.slots:
        return False  # it will never have any
    return any(
        one.adapter.preload and not one.is_settled_on(replica) and _is_worth_a_wait(one)
        for one in progress
    )


def _is_worth_a_wait(one: Progress) -> bool:
    """Not for an adapter that fails and that no replica has: the base model must be able to grow.
    But if others have it, the joining replica may be about to replace them."""
    return bool(one.on) or not one.failures()
