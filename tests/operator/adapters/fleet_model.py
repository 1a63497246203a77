"""A model of a pool whose workers load adapters, for plans of calls.

Each worker keeps what it was given under each name, also if the answer to a call was lost. Its
heartbeats are as old as a test says. Identities are those of the sources' current contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pando_operator.adapters.calls import Attempt, Call, CallTarget, Load, Outcome, Unload, begun
from pando_operator.adapters.plan import Plan, plan
from pando_operator.adapters.progress import Known
from pando_operator.adapters.replicas import Held, HostReplica
from pando_operator.adapters.report import rows
from pando_operator.resource.adapters import Adapter

SLOTS = 3


@dataclass(slots=True)
class Worker:
    name: str
    incarnation: str
    has: dict[str, Held] = field(default_factory=dict)
    shown: dict[str, Held] = field(default_factory=dict)  # by its last heartbeat
    slots: int = SLOTS
    full: bool = False  # its disk: it refuses loads
    silent: bool = False
    joining: bool = True
    ready_at: float = 0.0

    def beat(self) -> None:
        if not self.silent:
            self.shown = dict(self.has)


@dataclass(slots=True)
class Fleet:
    """The pool and its operator, which remembers attempts, and in the status what is known."""

    workers: dict[str, Worker] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)  # by source; no source: it is broken
    adapters: tuple[Adapter, ...] = ()
    attempts: dict[CallTarget, Attempt] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    now: float = 0.0
    made: list[Call] = field(default_factory=list)
    late: list[tuple[float, Call]] = field(
        default_factory=list
    )  # of earlier operators: when it ends
    _count: int = 0

    def add(self, **fields: object) -> Worker:
        self._count += 1
        name = f"w{self._count}"
        worker = Worker(name, f"i{self._count}", ready_at=self.now)
        for field_name, value in fields.items():
            setattr(worker, field_name, value)
        self.workers[name] = worker
        return worker

    def want(self, *adapters: Adapter) -> None:
        self.adapters = adapters

    def plan(self) -> Plan:
        return plan(self.adapters, self.known, self.replicas(), self.attempts, self.now)

    def replicas(self) -> Sequence[HostReplica]:
        return [
            HostReplica(
                name=one.name,
                incarnation=one.incarnation,
                url=f"http://{one.name}",
                answers=not one.silent,
                slots=one.slots,
                holds=dict(one.shown),
                joining=one.joining,
                joining_s=self.now - one.ready_at,
            )
            for one in self.workers.values()
        ]

    def reconcile(self) -> Plan:
        """Plan, remember, and begin the calls."""
        made = self.plan()
        self.known = dict(made.known)
        for target in made.dropped:
            self.attempts[target] = self.attempts[target].ended(self.now, error="silent")
        for call in made.calls:
            self.attempts[call.target] = begun(self.attempts, call, self.now)
            self.made.append(call)
        for worker in self.workers.values():
            worker.joining = worker.name in made.waiting
        return made

    def restart_operator(self, late_s: float = 0.0) -> None:
        """Another operator has only the status, and the calls of the last one go on: they end after
        `late_s` seconds, or when the adapter is unloaded."""
        self.known = {
            row.name: Known(row.source, row.identity, is_inherited=True)
            for row in rows(self.plan())  # as written to the status
        }
        self.late += [(self.now + late_s, attempt.call) for attempt in self.running()]
        self.attempts.clear()
        self.pass_time(0.0)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while ended := [one for one in self.late if one[0] <= self.now]:
            self.late.remove(ended[0])
            self._carry_out(ended[0][1])

    def running(self) -> list[Attempt]:
        return [one for one in self.attempts.values() if one.outcome is Outcome.RUNNING]

    def finish(self, attempt: Attempt, *, lost: bool = False) -> None:
        """Ends a call; if its answer is lost, it may still have its effect."""
        identity, error = self._carry_out(attempt.call)
        if lost:
            identity, error = "", "no answer"
        target = attempt.call.target
        self.attempts[target] = attempt.ended(self.now, identity=identity, error=error)

    def _carry_out(self, call: Call) -> tuple[str, str]:
        """Identity and error of the answer."""
        worker = self.workers.get(call.target.replica)
        if worker is None or worker.incarnation != call.target.incarnation:
            return "", "gone"
        name = call.target.adapter
        if isinstance(call, Unload):
            worker.has.pop(name, None)
            self.late = [one for one in self.late if one[1].target != call.target]
            return "", ""
        if (identity := self.contents.get(call.source)) is None:
            return "", "broken"
        old = worker.has.get(name)
        if worker.full and (old is None or old.identity != identity):
            return "", "out of disk"
        worker.has[name] = Held(identity, call.pin)
        return identity, ""

    def rounds(self, count: int = 1, seconds: float = 6.0) -> None:
        """All calls are answered, and heartbeats arrive."""
        for _ in range(count):
            self.reconcile()
            for attempt in self.running():
                self.finish(attempt)
            self.pass_time(seconds)
            for worker in self.workers.values():
                worker.beat()

    def states(self) -> dict[str, str]:
        return {row.name: row.state for row in rows(self.plan())}

    def loads(self) -> list[tuple[str, str]]:
        """Replica and source of each load so far."""
        return [(call.target.replica, call.source) for call in self.made if isinstance(call, Load)]
