"""The scheduler process: loads the model, then turns commands into steps and steps into events.

The HTTP process starts it. It binds the socket for commands and connects to the one for events. It
ignores the terminal's signals, since its parent drains first and then ends it; if the parent dies,
it exits.
"""

import gc
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zmq

from pando_fleet.free_memory import keep_freed_memory
from pando_worker.batch import ModelRunner
from pando_worker.cores import available_cores
from pando_worker.engine.step_log import StepLog
from pando_worker.engine.step_times import AnnouncingRunner
from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.messages import EXIT_WITH_REASON, Event, Loading, Ready, Working
from pando_worker.models.config import read_config
from pando_worker.models.errors import ModelError
from pando_worker.progress import Report, Stage
from pando_worker.ranks.leader import LeadingRunner, followers
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.settings import WorkerSettings
from pando_worker.stats import Stats
from pando_worker.wire import CommandReceiver

if TYPE_CHECKING:
    from pando_worker.engine.profile import StepProfile

log = logging.getLogger("pando.worker.scheduler")

STATS_MIN_S = 0.05  # least time between two Stats
STATS_MAX_S = 0.5  # most time between two Stats
_MASK_THREADS = 8  # at most, and at most half the cores
WRITE_PROFILE_S = 120.0  # a trace is some hundred MB of JSON
POLL_MS = 100  # how often an idle scheduler checks that its parent is alive


def run_scheduler(
    settings: WorkerSettings,
    command_endpoint: str,
    event_endpoint: str,
    configure_logging: Callable[[], None],
) -> None:
    """Process entry. Exits with EXIT_WITH_REASON after one log line if the model cannot be loaded
    or does not fit, and with 1 after a failure."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    configure_logging()
    # Threads that spin while they wait take the cores from the thread that they wait for: on busy
    # cores a step took 12 ms with this and 176 ms without. torch reads it when it is first
    # imported, here and in other ranks.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if settings.device == "cpu":
        keep_freed_memory()
    gc.disable()  # until all is loaded: torch's modules are a tenth quicker to import
    context = zmq.Context()
    commands, events = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    try:
        commands.bind(command_endpoint)
        events.connect(event_endpoint)
        # The private directory of this worker's sockets.
        directory = Path(command_endpoint.removeprefix("ipc://")).parent
        with followers(settings, directory, configure_logging) as sockets:
            sender = _EventSender(events)
            scheduler = _load(settings, directory, sockets, sender)
            profile = _profile(settings.profile, sender)
            # A garbage collection that walks all objects of torch and transformers stops every
            # stream for 133 ms (measured with bench/scheduler/scheduler_loop.py); these objects
            # stay anyway.
            gc.collect()
            gc.freeze()
            gc.enable()
            _Loop(scheduler, commands, sender, settings.log_every_steps, profile).run()
    except ModelError as error:
        log.error("cannot serve this model: %s", error)
        sys.exit(EXIT_WITH_REASON)
    except Exception:
        log.exception("the scheduler failed")  # in the log's form, not multiprocessing's
        sys.exit(1)
    finally:
        context.destroy(linger=0)


def _load(
    settings: WorkerSettings,
    directory: Path,
    followers: list[zmq.Socket[bytes]],
    sender: "_EventSender",
) -> Scheduler:
    report = _reporting(sender)
    report(Stage.LIBRARIES, 0.0)
    if read_config(Path(settings.model), settings.model_impl).is_text_encoder:
        return _load_text_encoder(settings, sender, report)
    # Torch takes seconds to import; nothing before this point needs it.
    from pando_worker.ranks.group import join
    from pando_worker.runner.model_runner import TorchModelRunner
    from pando_worker.runner.threaded import ThreadedRunner

    model = TorchModelRunner(settings, join(settings, 0, directory), report)
    runner: ModelRunner = model
    if followers:
        runner = leading = LeadingRunner(model, followers)
        if model.adapters is not None:
            model.adapters.send = leading.send_adapter
    if settings.overlap_schedule and settings.device == "cpu":
        runner = ThreadedRunner(runner)
    runner = _announcing(runner, sender)
    # On CPU the model needs the cores: a thread that fills masks would wait for one.
    spare = 1
    if settings.device != "cpu":
        spare = max(1, min(_MASK_THREADS, available_cores() // 2))
    vocab_size = model.config.vocab_size
    grammars = GrammarCompiler(
        Path(settings.model),
        vocab_size,
        mask_threads=spare,
        is_whole=model.config.encoder is not None,
    )
    return make_scheduler(settings, model.pools, runner, grammars, adapters=model.adapters)


def _load_text_encoder(
    settings: WorkerSettings, sender: "_EventSender", report: Report
) -> Scheduler:
    from pando_worker.runner.encoder_runner import EncoderRunner  # imports torch
    from pando_worker.runner.threaded import ThreadedRunner

    model = EncoderRunner(settings, report)
    runner: ModelRunner = model
    if settings.overlap_schedule and settings.device == "cpu":
        runner = ThreadedRunner(runner)
    return make_scheduler(settings, model.pools, _announcing(runner, sender))


def _announcing(runner: ModelRunner, sender: "_EventSender") -> ModelRunner:
    return AnnouncingRunner(runner, lambda seconds: sender.send(Working(seconds=seconds)))


def _reporting(sender: "_EventSender") -> Report:
    """Sends each stage, and within a stage not more often than it is shown."""
    shown: tuple[Stage | None, float] = None, 0.0

    def report(stage: Stage, done: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if stage is not shown[0] or now - shown[1] >= STATS_MIN_S:
            shown = stage, now
            sender.send(Loading(stage=stage, done=done))

    return report


def _profile(directory: Path | None, sender: "_EventSender") -> "StepProfile | None":
    if directory is None:
        return None
    from pando_worker.engine.profile import StepProfile  # imports torch

    return StepProfile(directory, lambda: sender.send(Working(seconds=WRITE_PROFILE_S)))


class _EventSender:
    """Sends events to the HTTP process."""

    def __init__(self, events: zmq.Socket[bytes]) -> None:
        self._socket = events
        self._encoder = msgspec.msgpack.Encoder()
        parent = multiprocessing.parent_process()
        assert parent is not None, "the scheduler is a child process of the HTTP process"
        self._parent = parent

    @property
    def parent_is_alive(self) -> bool:
        return self._parent.is_alive()

    def send(self, event: Event) -> None:
        """Blocks while the HTTP process cannot take more, but not after its death."""
        data = self._encoder.encode(event)
        while not self._socket.poll(POLL_MS, zmq.POLLOUT):
            if not self.parent_is_alive:
                sys.exit(1)
        self._socket.send(data)


class _Loop:
    """Repeats: receive commands, run a step, send its events."""

    def __init__(
        self,
        scheduler: Scheduler,
        commands: zmq.Socket[bytes],
        sender: _EventSender,
        log_every_steps: int,
        profile: "StepProfile | None",
    ) -> None:
        self._scheduler = scheduler
        self._commands, self._receiver = commands, CommandReceiver(commands)
        self._sender = sender
        self._profile = profile
        self._log = StepLog(log_every_steps, scheduler.stats(), time.monotonic())
        self._stats: Stats | None = None
        self._stats_at = 0.0

    def run(self) -> None:
        kv = self._scheduler.kv
        self._sender.send(
            Ready(
                capacity_tokens=kv.capacity_tokens,
                max_running_requests=len(kv.rows.pages),
                max_request_tokens=kv.max_request_tokens,
                page_size=kv.page_size,
            )
        )
        while self._sender.parent_is_alive:
            self._receive()
            for event in self._scheduler.step():
                self._sender.send(event)
            self._send_stats()
            if self._profile and not self._profile.done:
                self._profile.update(self._scheduler.meter.counts.steps_total)

    def _receive(self) -> None:
        """Receive all commands that have arrived; when idle, wait for one."""
        timeout = POLL_MS if self._scheduler.is_idle else 0
        if self._scheduler.only_waits:
            timeout = 1
        while self._commands.poll(timeout):
            for event in self._scheduler.receive(self._receiver.receive()):
                self._sender.send(event)
            timeout = 0

    def _send_stats(self) -> None:
        now = time.monotonic()
        if now - self._stats_at < STATS_MIN_S:
            return
        stats = self._scheduler.stats()
        self._log.update(stats, now)
        if stats != self._stats or now - self._stats_at >= STATS_MAX_S:
            self._sender.send(stats)
            self._stats, self._stats_at = stats, now
