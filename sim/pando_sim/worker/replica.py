"""`Replica`: a worker in virtual time.

Its scheduler, pools, cache and meters are the worker's own; the cost model determines the time of
its steps. A step happens in one event, at its beginning: commands that have arrived are received,
the scheduler steps, and the clock that it sees moves by the step's time. The step's results leave
at that time, in the event of the next step. Between events, a step with prompts appears as just
launched, any other as done.
"""

from bisect import bisect_right, insort
from dataclasses import replace
from enum import StrEnum
from functools import partial
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from pando_fleet.registry.adapter import Adapter
from pando_fleet.registry.replica import Heartbeat
from pando_fleet.registry.replica import ReplicaState as BeatState
from pando_sim.adapters import identity_of
from pando_sim.cost.model import CostModel
from pando_sim.spec import WorkerSpec
from pando_sim.timeline import Timeline
from pando_sim.worker.adapters import VirtualAdapters, adapter_states
from pando_sim.worker.model import VirtualModel
from pando_sim.worker.settings import MODEL
from pando_sim.worker.stay import Stay
from pando_sim.worker.stride import TimedStride, plan_stride
from pando_worker.heartbeats import with_report
from pando_worker.memory.namespace import of_adapter
from pando_worker.messages import (
    AdapterLoaded,
    AdapterPlaces,
    Event,
    LoadAdapter,
    Outputs,
    Ready,
    Rejected,
)
from pando_worker.pools import Pools
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.server.text.prompt_meter import PromptMeter
from pando_worker.settings import WorkerSettings
from pando_worker.stats import Stats

UNAVAILABLE = 503

_arrives_s = attrgetter("arrives_s")


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # accepts no requests, finishes those it has


class Replica:
    """Owned by the fleet, which calls `submit`, `stats` and `kill`."""

    def __init__(
        self,
        name: str,
        incarnation: str,
        spec: WorkerSpec,
        settings: WorkerSettings,
        cost: CostModel,
        timeline: Timeline,
        *,
        strides: bool = True,
    ) -> None:
        """
        Args:
            strides: False simulates each step separately, with the same results but slower.
        """
        self.name = name
        self.incarnation = incarnation
        self.state = ReplicaState.STARTING
        self.started_s = timeline.now_s
        self.ready_s: float | None = None
        self.stays: dict[str, Stay] = {}  # that have not ended
        self.model = VirtualModel(cost, spec.page_size)
        self.model.now_s = timeline.now_s
        self.model.on_prefill = self._launched
        self.gone = False
        self.adapters = VirtualAdapters(spec.served_adapters, self.model.clock)
        self._places = AdapterPlaces()
        self._names = spec.served_adapters.names
        self._states: tuple[Adapter, ...] | None = None  # of `_places`, once they are reported
        pools = Pools(
            capacity_tokens=spec.capacity_tokens,
            context_length=spec.context_length,
            host_pages=spec.host_tokens // spec.page_size,
            host_page_bytes=spec.page_size * cost.kv_bytes_per_token,
            copy_rate=self.model.copy_rate,
            adapter_slots=spec.served_adapters.slots if spec.served_adapters.names else 0,
            adapter_pages=spec.served_adapters.slots,
        )
        self.scheduler = make_scheduler(
            settings,
            pools,
            self.model,
            clock=self.model.clock,
            batches=self.model,
            adapters=self.adapters,
        )
        self._timeline = timeline
        self._strides = strides
        self._prompts = PromptMeter()
        self._inbox: list[Stay] = []  # by arrival
        self._due_s: float | None = None  # of its own next event
        self._ticket = 0  # of that event; earlier ones are void
        self._stride: TimedStride | None = None
        self._sent_steps = 0  # steps of the stride whose tokens have left
        self._leaving: list[Event] = []  # with the end of the current step
        self._seen: Stats | None = None  # of a step with prompts, for those who look into it
        kv = self.scheduler.kv
        starting = Heartbeat(
            replica=name,
            incarnation=incarnation,
            url=f"http://{name}",
            model=MODEL,
            state=BeatState.STARTING,
        )
        self._starting = starting
        self._ready = with_report(
            starting,
            Ready(
                capacity_tokens=kv.capacity_tokens,
                max_running_requests=len(kv.rows.pages),
                max_request_tokens=kv.max_request_tokens,
                page_size=kv.page_size,
            ),
        )
        self._check_adapters()

    def _check_adapters(self) -> None:
        """Makes the adapters known, as a worker does before it is ready."""
        for name in self._names:
            self.scheduler.receive(LoadAdapter(call=0, path=name))
        if self._names:
            for event in self.scheduler.step():
                self._send(event, self.model.now_s)

    # Called by the fleet

    def submit(self, stay: Stay) -> None:
        """Sends a request, which arrives at `stay.arrives_s`."""
        self.stays[stay.command.rid] = stay
        insort(self._inbox, stay, key=_arrives_s)
        arrives_s = max(self._inbox[0].arrives_s, self._timeline.now_s)
        if self._stride is not None:
            arrives_s = self._stride.border(arrives_s)
        if self._due_s is None or (arrives_s < self._due_s and self._may_wake):
            self._wake_at(arrives_s)

    def stats(self) -> Stats:
        """What the worker would report at this moment."""
        self._catch_up()
        if self._seen is not None and self._timeline.now_s < self.model.now_s:
            return self._seen
        if self.scheduler.is_idle:  # no step moves its clock
            self.model.now_s = max(self.model.now_s, self._timeline.now_s)
        return self.scheduler.stats()

    def heartbeat(self) -> Heartbeat:
        if self.state is ReplicaState.STARTING:
            return self._starting
        beat = with_report(self._ready, self.stats())
        if self._names:
            beat = replace(beat, adapters=self._names, adapter_states=self._adapter_states())
        measured = self._prompts.bytes_per_token
        return beat if measured == beat.bytes_per_token else replace(beat, bytes_per_token=measured)

    def _adapter_states(self) -> tuple[Adapter, ...]:
        if self._states is None:
            self._states = adapter_states(self._names, self._places)
        return self._states

    def become(self, state: ReplicaState) -> None:
        self.state = state
        self._ready = replace(self._ready, state=BeatState(state.value))

    def slow_down(self, factor: float) -> None:
        """Makes steps take `factor` times as long, from the next one on."""
        self.model.slowness = self.adapters.slowness = factor
        if self._stride is not None:
            self._wake_at(self._stride.border(self._timeline.now_s))

    def kill(self) -> list[Stay]:
        """Ends the process; returns its requests with their progress."""
        now_s = self._timeline.now_s
        if self._stride is not None:
            self._catch_up()
            self._tell(bisect_right(self._stride.ends, now_s))
            self._stride = None
        elif self._due_s is not None and self._due_s <= now_s:
            self._leave()
        self.gone = True
        self._ticket += 1
        lost, self.stays = list(self.stays.values()), {}
        return lost

    def cached_tokens(self, tokens: NDArray[np.int32], adapter: str = "") -> int:
        """How many of a prompt's tokens are in the cache now, computed with that adapter."""
        self._catch_up()
        return self.scheduler.kv.prefix_len(tokens, of_adapter(b"", identity_of(adapter)))

    # Its own events

    @property
    def _may_wake(self) -> bool:
        """Whether its next event may be moved forward; a running step is not interrupted."""
        rests = self.scheduler.is_idle or self.scheduler.only_waits
        return self._stride is not None or (rests and not self._leaving)

    def _wake_at(self, at_s: float) -> None:
        self._ticket += 1
        self._due_s = at_s
        self._timeline.at(at_s, partial(self._run, self._ticket))

    def _run(self, ticket: int) -> None:
        if ticket != self._ticket:
            return
        now_s, self._due_s, self._seen = self._timeline.now_s, None, None
        self._end_stride(now_s)
        self._leave()
        self._receive(now_s)
        if self.scheduler.is_idle:
            if self._inbox:
                self._wake_at(self._inbox[0].arrives_s)
            return
        self.model.now_s = now_s
        if self._strides and (stride := plan_stride(self.scheduler, self.model)) is not None:
            self._stride, self._sent_steps = stride, 0
            next_s = stride.ends[-1]
            if self._inbox:
                next_s = stride.border(self._inbox[0].arrives_s)
            self._wake_at(next_s)
            return
        self._leaving = self.scheduler.step()
        if self.model.now_s <= now_s:
            self._leave()
            self._wait_for_loads(now_s)
            return
        self._wake_at(self.model.now_s)

    def _wait_for_loads(self, now_s: float) -> None:
        """No step was made: all requests here wait for the load of an adapter."""
        next_s = self.adapters.next_s(now_s) if self.scheduler.only_waits else None
        if next_s is None:
            raise RuntimeError(f"{self.name} makes no step at {now_s} s although it has requests")
        if self._inbox:
            next_s = min(next_s, max(now_s, self._inbox[0].arrives_s))
        self._wake_at(next_s)

    def _end_stride(self, now_s: float) -> None:
        if (stride := self._stride) is not None:
            steps = bisect_right(stride.ends, now_s)
            stride.take_in(steps)
            self._tell(steps)
            self._stride = None

    def _catch_up(self) -> None:
        """Applies the steps of a stride that have begun by now."""
        stride, now_s = self._stride, self._timeline.now_s
        if stride is None or now_s <= stride.start_s or stride.begun(now_s) <= stride.taken_in:
            return
        begun = stride.begun(now_s)
        start_s, end_s = stride.span(begun - 1)
        self._seen = None
        if stride.has_prompt and self._timeline.looks_within(start_s, end_s):
            stride.take_in(begun - 1)
            stride.launch(begun)
            self._seen = self.scheduler.stats()
        stride.take_in(begun)

    def _receive(self, now_s: float) -> None:
        while self._inbox and self._inbox[0].arrives_s <= now_s:
            stay = self._inbox.pop(0)
            if self.state is ReplicaState.DRAINING:
                self._refuse(stay, UNAVAILABLE)
                continue
            if stay.prompt_bytes:
                tokens = len(stay.command.input_ids) - stay.command.num_output
                self._prompts.observe(stay.prompt_bytes, tokens)
            for event in self.scheduler.receive(stay.command):
                self._send(event, now_s)

    def _launched(self, end_s: float) -> None:
        """A step with prompts will take until `end_s`."""
        if self._timeline.looks_within(self._timeline.now_s, end_s):
            self._seen = self.scheduler.stats()

    # Results

    def _leave(self) -> None:
        leaving, self._leaving = self._leaving, []
        for event in leaving:
            self._send(event, self.model.now_s)

    def _send(self, event: Event, at_s: float) -> None:
        match event:
            case Outputs(outputs=outputs):
                for output in outputs:
                    stay = self.stays[output.rid]
                    stay.token(at_s)
                    if stay.tokens == 1:
                        stay.cached_tokens = output.cached_tokens
                        stay.follower.first_byte(stay)
                    if output.finish is not None:
                        del self.stays[output.rid]
                        stay.follower.finished(stay)
            case AdapterPlaces() as places:
                self._places, self._states = places, None
            case AdapterLoaded():
                pass
            case Rejected(rid=rid, status=status):
                self._refuse(self.stays[rid], status)
            case _:
                raise AssertionError(f"nobody asked for {event}")

    def _refuse(self, stay: Stay, status: int) -> None:
        del self.stays[stay.command.rid]
        stay.follower.refused(stay, status)

    def _tell(self, steps: int) -> None:
        """Reports the tokens of the stride's first `steps` steps, which have left."""
        assert self._stride is not None
        count = steps - self._sent_steps
        if count <= 0:
            return
        ends = self._stride.ends
        first_s, last_s = ends[self._sent_steps], ends[steps - 1]
        longest_s = max(self._stride.durations(self._sent_steps + 1, steps), default=0.0)
        for rid in self._stride.rids:
            stay = self.stays[rid]
            stay.tokens += count
            stay.longest_gap_s = max(stay.longest_gap_s, first_s - stay.last_s, longest_s)
            stay.last_s = last_s
        self._sent_steps = steps
