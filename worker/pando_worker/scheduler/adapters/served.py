"""`ServedAdapters`: the LoRA adapters that requests may name, and which of them have a slot.

    checked ──a request needs it──▶ in line ──room──▶ loading ──▶ open ──evicted──▶ checked

A request is admitted only while its adapter is open, and holds the slot until it ends, through
retractions too. So an adapter leaves its slot only when no launched step has a row of it. Loads run
in the background; the requests that wait for one are out of the queue's order meanwhile
(`WaitingQueue`), and others pass.

Adapters get slots in the order of their oldest waiting requests. One that does not fit lets others
pass, until its request was passed over too often: then it is the next to get a slot, and the
adapters whose requests end soonest are closed to new ones until there is room. What was loaded for
waiting requests stays until one of them has had it, so two adapters cannot drive each other out.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.info import RANK_PAGE, AdapterInfo
from pando_worker.batch import Adapters, BackgroundJob
from pando_worker.memory.adapter_slots import AdapterSlots
from pando_worker.messages import (
    AdapterDone,
    AdapterLoaded,
    AdapterPlaces,
    AdapterRefused,
    Event,
    LoadAdapter,
    PinAdapter,
    UnloadAdapter,
)
from pando_worker.scheduler.adapters.adapter import FailedLoad, Load, Need, ServedAdapter, WaitTimes
from pando_worker.scheduler.req import Req
from pando_worker.stats import Stats

log = logging.getLogger("pando.worker.scheduler")

Clock = Callable[[], float]


class ServedAdapters:
    def __init__(self, slots: AdapterSlots, runner: Adapters, clock: Clock) -> None:
        """
        Args:
            clock: seconds
        """
        self.slots = slots
        self._runner = runner
        self._clock = clock
        self._adapters: dict[bytes, ServedAdapter] = {}
        self._checks: list[tuple[int, BackgroundJob[AdapterInfo]]] = []
        self._loading: dict[bytes, ServedAdapter] = {}
        # Held since their load, as no waiting request has had them yet.
        self._fresh: dict[bytes, ServedAdapter] = {}
        self._leaving: dict[bytes, ServedAdapter] = {}  # unloaded, and not forgotten yet
        self._lacking_pins: dict[bytes, None] = {}  # pinned, and in no slot yet
        self._closed: dict[bytes, None] = {}  # to new requests, so that another gets the slot
        self._opened: dict[bytes, None] = {}  # since `take_opened`
        self._in_line_since: dict[bytes, float] = {}
        self._events: list[Event] = []
        self._failed: list[FailedLoad] = []
        self._moved = False  # whether an adapter is in another place than reported
        self._times = WaitTimes()

    @property
    def is_busy(self) -> bool:
        """Whether adapters are read, loaded or about to be forgotten."""
        return bool(self._checks or self._loading or self._leaving or self._lacking_pins)

    def __contains__(self, identity: bytes) -> bool:
        """Whether requests may name it."""
        adapter = self._adapters.get(identity)
        return adapter is not None and adapter.loads > 0

    # Commands

    def receive(self, command: LoadAdapter | PinAdapter | UnloadAdapter) -> list[Event]:
        """Returns the answer, if there is one at once."""
        match command:
            case LoadAdapter(call=call, path=path):
                self._checks.append((call, self._runner.check(path)))
            case PinAdapter(call=call, identity=identity, is_pinned=is_pinned):
                self._pin(call, self._adapters[identity], is_pinned=is_pinned)
            case UnloadAdapter(call=call, identity=identity):
                adapter = self._adapters[identity]
                adapter.loads -= 1
                if adapter.loads:
                    self._events.append(AdapterDone(call=call))
                else:
                    adapter.unloads.append(call)
                    self._leaving[identity] = adapter
        return self._take_events()

    def _pin(self, call: int, adapter: ServedAdapter, *, is_pinned: bool) -> None:
        info = adapter.info
        if not is_pinned:
            self._unpin(info.identity)
            self._events.append(AdapterDone(call=call))
            return
        if not self.slots.is_pinned(info.identity):
            if not self.slots.can_pin(info.pages, self._unpinned_pages(info.identity)):
                message = (
                    f"it cannot be pinned: of max_loras {self.slots.num_slots} and lora_ranks"
                    f" {self.slots.num_pages * RANK_PAGE}, too few would be left for the adapters"
                    " that are not pinned"
                )
                self._events.append(AdapterRefused(call=call, status=409, message=message))
                return
            self.slots.pin(info.identity, info.pages)
        if self._is_in_slot(adapter):
            self._events.append(AdapterDone(call=call))
            return
        adapter.pins.append(call)
        if info.identity not in self.slots:
            self._lacking_pins[info.identity] = None

    def _unpin(self, identity: bytes) -> None:
        self.slots.unpin(identity)
        self._lacking_pins.pop(identity, None)

    def _unpinned_pages(self, but: bytes) -> Iterable[int]:
        """Of those unloaded as well, since requests may still wait for them."""
        for identity, adapter in self._adapters.items():
            if identity != but and not self.slots.is_pinned(identity):
                yield adapter.info.pages

    # Requests

    def is_open(self, identity: bytes) -> bool:
        """Whether requests with this adapter can be admitted: it has a slot, and keeps it."""
        is_here = identity in self.slots and identity not in self._loading
        return is_here and identity not in self._closed

    def hold(self, req: Req) -> None:
        """Give a request that is admitted the slot of its adapter, until `release`."""
        adapter = self._adapters[req.adapter]
        req.slot = self.slots.hold(req.adapter)
        adapter.reqs[req] = None
        self._let_go(req.adapter)

    def release(self, req: Req) -> None:
        """A request that may hold a slot has ended."""
        if req.slot < 0:
            return
        req.slot = -1
        adapter = self._adapters[req.adapter]
        del adapter.reqs[req]
        adapter.used_at = self._clock()
        self.slots.release(req.adapter)

    # Once a step

    def tend(
        self,
        line: Sequence[Need],
        is_awaited: Callable[[bytes], bool],
        is_used: Callable[[bytes], bool],
    ) -> list[Event]:
        """Take the results of the other threads, and start loads.

        Args:
            line: the adapters that waiting requests need, which are not open, in order
            is_awaited: whether a waiting request has this adapter
            is_used: whether any request here has it
        """
        self._take_checks()
        self._take_loads()
        for identity in [each for each in self._fresh if not is_awaited(each)]:
            self._let_go(identity)
        for identity in [each for each in self._leaving if not is_used(each)]:
            self._forget(identity)
        self._start_loads(line)
        if self._moved:
            self._events.append(self._places())
            self._moved = False
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def take_opened(self) -> list[bytes]:
        """The adapters that have opened since the last call."""
        opened, self._opened = list(self._opened), {}
        return opened

    def take_failed(self) -> list[FailedLoad]:
        """The loads that have failed since the last call; the requests that need them fail too."""
        failed, self._failed = self._failed, []
        return failed

    def put_stats(self, stats: Stats) -> None:
        stats.adapter_slots = self.slots.num_slots
        stats.free_adapter_slots = self.slots.free_slots + self.slots.evictable_slots
        stats.adapter_idle_s = self._next_idle_s()
        stats.adapters_loading = len(self._loading)
        stats.adapters_waiting = len(self._in_line_since)
        self._times.put_stats(stats)

    def _next_idle_s(self) -> float:
        """How long the adapter has been idle that gives way to the next load; 0 if none has to. In
        halves of a second, so that the report of a worker at rest seldom changes."""
        if self.slots.free_slots or (oldest := self.slots.next_evicted) is None:
            return 0.0
        return math.ceil(2 * (self._clock() - self._adapters[oldest].used_at)) / 2

    def check_idle(self) -> None:
        """Check, with no request here, that none holds a slot.

        Raises:
            RuntimeError: a slot leaked.
        """
        held = [each for each in self.slots if self.slots.is_held(each)]
        if lost := [each.hex() for each in held if each not in self._loading]:
            raise RuntimeError(f"idle, but slots of these adapters are held: {', '.join(lost)}")

    def _is_in_slot(self, adapter: ServedAdapter) -> bool:
        return adapter.info.identity in self.slots and adapter.load is None

    def _let_go(self, identity: bytes) -> None:
        """Release the hold of an adapter that was fresh."""
        if self._fresh.pop(identity, None):
            self.slots.release(identity)

    def _places(self) -> AdapterPlaces:
        return AdapterPlaces(
            device=tuple(identity for identity in self._adapters if identity in self.slots),
            waiting=tuple(self._in_line_since),
            host=tuple(self._runner.in_host_memory),
        )

    # Other threads' results

    def _take_checks(self) -> None:
        done = [check[1].done() for check in self._checks]
        if not any(done):
            return
        checks = list(zip(self._checks, done, strict=True))
        self._checks = [check for check, is_done in checks if not is_done]
        for (call, job), is_done in checks:
            if is_done:
                self._events.append(self._loaded(call, job))

    def _loaded(self, call: int, job: BackgroundJob[AdapterInfo]) -> Event:
        try:
            info = job.result()
        except AdapterError as error:
            return AdapterRefused(call=call, status=400, message=str(error))
        except Exception:
            log.exception("an adapter could not be read")
            message = "it could not be read; see the worker's log"
            return AdapterRefused(call=call, status=500, message=message)
        known = self._adapters.get(info.identity)
        is_new = known is None or (not known.loads and not self.slots.is_pinned(info.identity))
        if is_new and not self.slots.is_possible(info.pages):
            message = (
                f"its rank {info.rank} finds no room beside the pinned adapters: unpin one, or"
                " raise max_loras and lora_ranks"
            )
            if known is None:
                self._runner.forget(info.identity)
            return AdapterRefused(call=call, status=409, message=message)
        adapter = self._adapters.setdefault(info.identity, ServedAdapter(info))
        adapter.loads += 1
        self._leaving.pop(info.identity, None)
        self._answer(adapter.unloads)
        self._moved = True
        return AdapterLoaded(call=call, identity=info.identity, rank=info.rank)

    def _take_loads(self) -> None:
        for identity, adapter in [*self._loading.items()]:
            load = adapter.load
            assert load is not None
            if not load.job.done():
                continue
            del self._loading[identity]
            adapter.load = None
            self._moved = True
            try:
                load.job.result()
            except Exception as error:
                self._fail(adapter, error)
                continue
            adapter.used_at = self._clock()
            self._times.loaded(load, adapter.used_at)
            self._fresh[identity] = adapter
            self._opened[identity] = None
            self._answer(adapter.pins)

    def _fail(self, adapter: ServedAdapter, error: Exception) -> None:
        identity = adapter.info.identity
        message = f"the adapter in {adapter.info.path} cannot be loaded any more"
        if isinstance(error, AdapterError):
            message = f"{message}: {error}"
        log.error("%s", message, exc_info=None if isinstance(error, AdapterError) else error)
        self._unpin(identity)
        self.slots.release(identity)
        self.slots.drop(identity)
        self._failed.append(FailedLoad(identity, message))
        for call in adapter.pins:
            self._events.append(AdapterRefused(call=call, status=502, message=message))
        adapter.pins.clear()

    def _answer(self, calls: list[int]) -> None:
        self._events += [AdapterDone(call=call) for call in calls]
        calls.clear()

    def _forget(self, identity: bytes) -> None:
        """Forget an unloaded adapter, unless it is loading or a launched step may have a row."""
        adapter = self._leaving[identity]
        if adapter.load or adapter.reqs:
            return
        self._let_go(identity)
        self._unpin(identity)
        if identity in self.slots:
            self._drop(identity)
        self._runner.forget(identity)
        del self._adapters[identity], self._leaving[identity]
        self._answer(adapter.pins)
        self._answer(adapter.unloads)
        self._moved = True

    def _drop(self, identity: bytes) -> None:
        self.slots.drop(identity)
        self._left(identity)

    def _left(self, identity: bytes) -> None:
        """An adapter has lost its slot."""
        self._closed.pop(identity, None)
        self._opened.pop(identity, None)
        self._moved = True

    # The line for slots

    def _start_loads(self, line: Sequence[Need]) -> None:
        now = self._clock()
        waited, self._in_line_since = self._in_line_since, {}
        is_blocked = False
        for need in [*(Need(each, True) for each in self._lacking_pins), *line]:
            identity = need.identity
            if identity in self.slots or any(f.identity == identity for f in self._failed):
                continue
            adapter = self._adapters[identity]
            if not is_blocked and self.slots.can_take(adapter.info.pages):
                self._start(adapter, now)
                if identity in waited:
                    self._times.got_slot(waited[identity], now)
                continue
            self._in_line_since[identity] = waited.get(identity, now)
            if need.is_starving and not is_blocked:
                is_blocked = True  # those behind it must not take what becomes free
                self._make_room(adapter.info.pages)
        self._moved |= waited.keys() != self._in_line_since.keys()
        if self._closed and not is_blocked:
            self._opened |= self._closed
            self._closed = {}

    def _start(self, adapter: ServedAdapter, now: float) -> None:
        info = adapter.info
        for evicted in self.slots.evict(info.pages):
            self._left(evicted)
        place = self.slots.take(info.identity, info.pages)
        was_in_host = info.identity in self._runner.in_host_memory
        adapter.load = Load(self._runner.load(place.slot, place.pages, info), now, was_in_host)
        self._loading[info.identity] = adapter
        self._moved = True
        self._lacking_pins.pop(info.identity, None)

    def _make_room(self, pages: int) -> None:
        """Evict idle adapters, and close those whose requests end soonest, until an adapter of so
        many pages will find room."""
        for identity in self.slots.evict(pages):
            self._left(identity)
        slots = self.slots.free_slots + len(self._closed)
        free = self.slots.free_pages
        free += sum(self._adapters[each].info.pages for each in self._closed)
        closable = [each for each in self._adapters.values() if self._is_closable(each)]
        for adapter in sorted(closable, key=lambda each: each.remaining_tokens):
            if slots and free >= pages:
                return
            self._closed[adapter.info.identity] = None
            slots, free = slots + 1, free + adapter.info.pages

    def _is_closable(self, adapter: ServedAdapter) -> bool:
        identity = adapter.info.identity
        is_kept = identity in self._fresh or self.slots.is_pinned(identity)
        return bool(adapter.reqs) and not is_kept and identity not in self._closed
