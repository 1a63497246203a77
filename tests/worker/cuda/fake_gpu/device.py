"""`FakeGpu`: streams, launches and captured graphs."""

import random
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch

from tests.worker.cuda.fake_gpu.memory import Actor, Block, Clock, CudaError

Range = tuple[Block, int, int, bool]
"""Bytes from the first to before the second number; whether they are written."""


class Stream(Actor):
    def __init__(self, gpu: "FakeGpu", name: str) -> None:
        super().__init__(name)
        self.gpu = gpu

    def wait_event(self, event: "Event") -> None:
        if self.gpu.graph is not None and self is self.gpu.graph_stream:
            raise CudaError("a stream that is captured waits for an event from outside")
        if event.clock is not None:
            self.after(event.clock)

    def wait_stream(self, other: "Stream") -> None:
        self.after(other.seen)

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        self.gpu.wait(self.seen, "a stream is synchronized")

    def query(self) -> bool:
        return self.gpu.may_have_ended(self.seen)


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing
        self.clock: Clock | None = None
        self.gpu: FakeGpu | None = None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or FakeGpu.of_thread().stream
        self.gpu = stream.gpu
        self.gpu.not_captured("an event is recorded")
        stream.tick()
        self.clock = dict(stream.seen)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or FakeGpu.of_thread().stream).wait_event(self)

    def synchronize(self) -> None:
        if self.gpu is not None and self.clock is not None:
            self.gpu.not_captured("an event is synchronized")
            self.gpu.host.after(self.clock)

    def query(self) -> bool:
        return self.gpu is None or self.clock is None or self.gpu.may_have_ended(self.clock)

    def elapsed_time(self, end: "Event") -> float:
        """Of milliseconds."""
        assert self.enable_timing and end.enable_timing and end.query()
        return 1.0


@dataclass(frozen=True, slots=True)
class _Recorded:
    what: str
    run: Callable[[], object]
    ranges: Sequence[tuple[weakref.ref[Block], int, int, bool]]
    by_values: "Callable[[], list[Range]] | None"


@dataclass(eq=False)
class Graph:
    """A captured graph: launches that run again on the same memory.

    Attributes:
        own: memory allocated during the capture, which stays as long as the graph
    """

    launches: list[_Recorded] = field(default_factory=list)
    own: list[Block] = field(default_factory=list)
    _capture: ExitStack = field(default_factory=ExitStack)

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        assert capture_error_mode == "thread_local", "other threads call CUDA"
        gpu = FakeGpu.of_thread()
        self._capture.enter_context(gpu.capturing(self, gpu.stream))

    def capture_end(self) -> None:
        self._capture.close()

    def replay(self) -> None:
        gpu = FakeGpu.of_thread()
        gpu.not_captured("a graph is replayed")
        for launch in self.launches:
            ranges = []
            for block, first, end, writes in launch.ranges:
                if (alive := block()) is None:
                    raise CudaError(f"a graph uses memory that was freed ({launch.what})")
                ranges.append((alive, first, end, writes))
            what = f"{launch.what}, in a graph"
            gpu.launch(what, launch.run, ranges, launch.by_values)


class FakeGpu:
    """
    Attributes:
        host: all threads of the program, which order their own work
        graph: that is being captured; None outside
        registered: pinned memory that is not torch's, by address
        launched: how often what was
        allocated, peak: bytes of living allocations, now and at most
    """

    _threads = threading.local()

    def __init__(self, index: int = 0, seed: int = 0, total_bytes: int = 2 * 2**30) -> None:
        self.index, self.total_bytes = index, total_bytes
        self.random = random.Random(seed)
        self.allocated = self.peak = 0
        self.launched: Counter[str] = Counter()
        self.errors: list[CudaError] = []  # found where nothing can be raised
        self.registered: dict[int, Block] = {}
        self.refused = 0  # CUDA's error for the next registration
        self.graph: Graph | None = None
        self.graph_stream: Stream | None = None
        self._capturing_thread = 0
        self.host = Actor("the host")
        self._lock = threading.RLock()
        self.streams: list[Stream] = []
        self.default = self.new_stream()
        self._local = threading.local()

    @classmethod
    def of_thread(cls) -> "FakeGpu":
        """The current device of this thread."""
        gpu: FakeGpu = cls._threads.gpu
        return gpu

    def use_in_thread(self) -> None:
        FakeGpu._threads.gpu = self

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        before = getattr(FakeGpu._threads, "gpu", None)
        self.use_in_thread()
        try:
            yield
        finally:
            FakeGpu._threads.gpu = before

    def new_stream(self, device: object = None) -> Stream:
        self.streams.append(Stream(self, f"stream {len(self.streams)} of GPU {self.index}"))
        return self.streams[-1]

    @property
    def stream(self) -> Stream:
        return getattr(self._local, "stream", self.default)

    @contextmanager
    def using(self, stream: Stream | None) -> Iterator[None]:
        before = self.stream
        self._local.stream = stream or before
        try:
            yield
        finally:
            self._local.stream = before

    @property
    def captures(self) -> bool:
        """Whether what this thread launches now is captured."""
        return self.graph is not None and self._capturing_thread == threading.get_ident()

    def not_captured(self, what: str) -> None:
        if self.captures:
            raise CudaError(f"not permitted while a stream is captured: {what}")

    @contextmanager
    def capturing(self, graph: Graph, stream: Stream) -> Iterator[None]:
        self.not_captured("another capture begins")
        if stream is self.default:
            raise CudaError("the default stream cannot be captured")
        self.wait(stream.seen, "a capture begins")
        self.graph, self.graph_stream = graph, stream
        self._capturing_thread = threading.get_ident()
        try:
            with self.using(stream):
                yield
        finally:
            self.graph = self.graph_stream = None

    def launch(
        self,
        what: str,
        run: Callable[[], object],
        ranges: Iterable[Range],
        by_values: Callable[[], list[Range]] | None = None,
    ) -> None:
        """Run something in the current stream, or record it in the graph that is captured.

        Args:
            ranges: what it uses
            by_values: what it uses beside, which depends on values on the device
        """
        with self._lock:
            self._launch(what, run, ranges, by_values)

    def _launch(
        self,
        what: str,
        run: Callable[[], object],
        ranges: Iterable[Range],
        by_values: Callable[[], list[Range]] | None,
    ) -> None:
        self._raise_errors()
        if self.captures:
            assert self.graph is not None
            if self.stream is not self.graph_stream:
                raise CudaError(f"{what}: another stream is used in a capture")
            weak = [(weakref.ref(block), first, end, w) for block, first, end, w in ranges]
            self.graph.launches.append(_Recorded(what, run, weak, by_values))
            return
        self.launched[what] += 1
        stream, host = self.stream, self.host
        host.tick()
        stream.after(host.seen)
        stream.tick()
        for block, first, end, writes in (*ranges, *(by_values() if by_values else ())):
            if block.gpu is not None and block.gpu != self.index:
                raise CudaError(f"{what}: a tensor of GPU {block.gpu} on GPU {self.index}")
            block.use(first, end, stream, what, writes=writes)
        with torch._C.DisableTorchFunction(), torch.inference_mode():
            run()

    def host_uses(self, what: str, block: Block, first: int, end: int, *, writes: bool) -> None:
        """The host itself reads or writes pinned memory."""
        with self._lock:
            self.host.tick()
            block.use(first, end, self.host, what, writes=writes)

    def wait(self, clock: Clock, what: str) -> None:
        """This thread waits for the device."""
        self.not_captured(what)
        if getattr(self._local, "is_forbidden", False):
            raise CudaError(f"the host waits for the device within a step: {what}")
        with self._lock:
            self.host.after(clock)

    def wait_for_all(self, what: str) -> None:
        for stream in list(self.streams):
            self.wait(stream.seen, what)

    @contextmanager
    def no_waits(self) -> Iterator[None]:
        """Within, only an event's `synchronize` may wait for the device."""
        self._local.is_forbidden = True
        try:
            yield
        finally:
            self._local.is_forbidden = False

    def may_have_ended(self, clock: Clock) -> bool:
        """By chance, unless it has certainly ended. If so, this thread has seen it."""
        self.not_captured("an event is queried")
        seen = self.host.seen
        if all(seen.get(actor, -1) >= time for actor, time in clock.items()):
            return True
        if self.random.random() < 0.8:
            return False
        self.host.after(clock)
        return True

    def allocate(self, what: str, nbytes: int) -> Block:
        """Device memory."""
        block = Block(f"a result of {what}", nbytes, self.index, self.stream, self._free)
        if self.captures:
            assert self.graph is not None
            self.graph.own.append(block)
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)
        return block

    def _free(self, block: Block) -> None:
        """Its stream may give the memory to what it launches next."""
        self.allocated -= block.nbytes
        assert block.owner is not None
        next_seen = {**self.host.seen}  # by what the stream runs next
        for actor, time in block.owner.seen.items():
            next_seen[actor] = max(time, next_seen.get(actor, -1))
        use = block.unfinished(next_seen, except_for=block.owner)
        if use is not None and isinstance(use.actor, Stream):
            self.errors.append(
                CudaError(f"{block.name} is freed while {use.actor.name} may use it ({use.what})")
            )

    def register(self, address: int, nbytes: int) -> int:
        self.not_captured("memory is pinned")
        if not self.refused:
            self.registered[address] = Block("registered memory", nbytes, None)
        return self.refused

    def unregister(self, address: int) -> None:
        block = self.registered.pop(address)
        if use := block.unfinished(self.host.seen):
            self.errors.append(CudaError(f"pinned memory is freed during {use.what}"))

    def _raise_errors(self) -> None:
        if self.errors:
            raise self.errors.pop()

    def check(self) -> None:
        """Raise what could not be raised where it was found."""
        self._raise_errors()
