"""Which replicas have an adapter as the spec says.

A heartbeat shows the identity of an adapter's weights, not where they came from. So the first load
of a source tells which weights it has; from then on heartbeats show which other replicas have them.
The status keeps that, for the next operator.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from pando_operator.adapters.calls import (
    SETTLE_S,
    Attempt,
    Attempts,
    CallTarget,
    Load,
    Outcome,
    Unload,
)
from pando_operator.adapters.replicas import Held, HostReplica
from pando_operator.resource.adapters import Adapter


@dataclass(frozen=True, slots=True)
class Known:
    """An adapter that an operator has loaded, and the weights that its source had then."""

    source: str
    identity: str = ""  # "": no replica has loaded it yet
    # From an earlier operator, which may have begun loads: heartbeats show one only once it ends.
    is_inherited: bool = False


@dataclass(frozen=True, slots=True)
class AdaptersView:
    """The replicas and calls of one moment."""

    replicas: Sequence[HostReplica]
    attempts: Attempts
    now: float

    def attempt(self, name: str, replica: HostReplica) -> Attempt | None:
        return self.attempts.get(CallTarget(replica.name, replica.incarnation, name))

    def held(self, name: str, replica: HostReplica) -> Held | None:
        """What the replica has under this name: its answer to a call counts until its heartbeats
        are certainly newer."""
        last = self.attempt(name, replica)
        if last is None or last.outcome is not Outcome.DONE or self.now - last.at >= SETTLE_S:
            return replica.holds.get(name)
        return Held(last.identity, last.call.pin) if isinstance(last.call, Load) else None

    def has(self, name: str, identity: str) -> Callable[[HostReplica], bool]:
        """Whether a replica has these weights under this name."""

        def is_there(replica: HostReplica) -> bool:
            held = self.held(name, replica)
            return held is not None and held.identity == identity

        return is_there

    def may_have(self, name: str, known: Known, replica: HostReplica) -> bool:
        """Whether the replica has something under this name or may have it soon, since a load goes
        on there even if its answer was lost, or still runs requests of what it had. An unload ends
        such a load, too."""
        last = self.attempt(name, replica)
        if last is None and known.is_inherited and replica.may_be_loading:
            return True
        if last is None or (isinstance(last.call, Unload) and last.outcome is Outcome.DONE):
            return self.held(name, replica) is not None
        return True

    def loaded(self, adapter: Adapter, replica: HostReplica) -> str:
        """The identity that the replica answered when it loaded the adapter from its source, if it
        still has that; "" otherwise."""
        last, held = self.attempt(adapter.name, replica), self.held(adapter.name, replica)
        if last is None or held is None or last.outcome is not Outcome.DONE:
            return ""
        is_same = isinstance(last.call, Load) and last.call.source == adapter.source
        return last.identity if is_same and held.identity == last.identity else ""

    def failure(self, adapter: Adapter, replica: HostReplica) -> Attempt | None:
        """The last call for the adapter from its source, if it failed, or repeats one that did."""
        last = self.attempt(adapter.name, replica)
        if last is None or not last.error or not isinstance(last.call, Load):
            return None
        return last if last.call.source == adapter.source else None


def learned(
    adapters: Sequence[Adapter], known: Mapping[str, Known], view: AdaptersView
) -> dict[str, Known]:
    """What is known of the spec's adapters, and of removed ones that a replica may still have or
    get.

    The weights of a source stay those that were known first, while a replica has them: another
    replica may find others there.
    """
    found: dict[str, Known] = {}
    for adapter in adapters:
        was = known.get(adapter.name)
        identity = was.identity if was and was.source == adapter.source else ""
        if not identity or not any(map(view.has(adapter.name, identity), view.replicas)):
            loaded = (view.loaded(adapter, replica) for replica in view.replicas)
            identity = next(filter(None, loaded), identity)
        is_inherited = was is not None and was.is_inherited
        found[adapter.name] = Known(adapter.source, identity, is_inherited)
    for name, was in known.items():
        if name not in found and any(view.may_have(name, was, each) for each in view.replicas):
            found[name] = was
    return found


@dataclass(frozen=True, slots=True)
class Progress:
    """One adapter of the spec on each replica."""

    adapter: Adapter
    identity: str  # of its weights; "": no replica has loaded them yet
    view: AdaptersView
    on: Set[str]  # names of the replicas that serve it as the spec says

    @classmethod
    def of(cls, adapter: Adapter, identity: str, view: AdaptersView) -> "Progress":
        wanted, name = Held(identity, adapter.pin), adapter.name
        there = (one.name for one in view.replicas if view.held(name, one) == wanted)
        return cls(adapter, identity, view, frozenset(there if identity else ()))

    def is_on(self, replica: HostReplica) -> bool:
        """Whether the replica serves the adapter as the spec says."""
        return replica.name in self.on

    def differs_on(self, replica: HostReplica) -> bool:
        """Whether the replica found other weights at the source than others did: loading it again
        would not help."""
        loaded = self.view.loaded(self.adapter, replica)
        held = self.view.held(self.adapter.name, replica)
        has_pin = held is not None and held.pinned == self.adapter.pin
        return bool(loaded) and has_pin and loaded != self.identity

    def is_settled_on(self, replica: HostReplica) -> bool:
        """Whether there is nothing left to load."""
        return self.is_on(replica) or self.differs_on(replica)

    def is_running_on(self, replica: HostReplica) -> bool:
        last = self.view.attempt(self.adapter.name, replica)
        return last is not None and last.outcome is Outcome.RUNNING

    def replaces_on(self, replica: HostReplica) -> bool:
        """Whether the replica serves other weights under this name, which a load would replace."""
        held = self.view.held(self.adapter.name, replica)
        return held is not None and held.identity != self.identity

    @property
    def replicas(self) -> Sequence[HostReplica]:
        return self.view.replicas

    def missing(self) -> list[HostReplica]:
        """The replicas that do not serve it as the spec says."""
        if len(self.on) == len(self.replicas):  # mostly
            return []
        return [one for one in self.replicas if one.name not in self.on]

    def lacking(self) -> list[HostReplica]:
        """The replicas that take calls and have something left to load."""
        return [one for one in self.missing() if one.takes_calls and not self.differs_on(one)]

    def failures(self) -> dict[str, Attempt]:
        """The failed last calls, by replica."""
        found = {one.name: self.view.failure(self.adapter, one) for one in self.replicas}
        return {name: attempt for name, attempt in found.items() if attempt is not None}
