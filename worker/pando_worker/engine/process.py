"""The scheduler process: loads the model, then turns commands into steps and steps into events.

Started by the HTTP process. It binds the commands' end and connects to the events'. It leaves the
terminal's signals to its parent, which drains first and then ends it; should the parent die, it
ends by itself.
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

from pando_worker.batch import ModelRunner
from pando_worker.cores import available_cores
from pando_worker.engine.step_log import StepLog
from pando_worker.engine.step_times import AnnouncingRunner
from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.messages import Command, Event, Ready, Stats, Working
from pando_worker.models.errors import ModelError
from pando_worker.ranks.leader import LeadingRunner, followers
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pando_worker.engine.profile import StepProfile

log = logging.getLogger("pando.worker.scheduler")

STATS_MIN_S = 0.05  # between two Stats when something changed
STATS_MAX_S = 0.5  # between two Stats anyway
_MASK_THREADS = 8  # at most, and half the cores
WRITE_PROFILE_S = 120.0  # a trace is some hundred MB of JSON
POLL_MS = 100  # how long an idle scheduler waits before it looks after its parent


def run_scheduler(
    settings: WorkerSettings,
    command_endpoint: str,
    event_endpoint: str,
    configure_logging: Callable[[], None],
) -> None:
    """Process entry. Exits 1 with one log line when the model cannot be loaded or does not fit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    configure_logging()
    # Read when torch is first imported, here and in other ranks. Threads that spin while they wait
    # for each other take the cores from the one they wait for: measured on busy cores, a step took
    # 12 ms with, 176 without.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    context = zmq.Context()
    commands, events = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    try:
        commands.bind(command_endpoint)
        events.connect(event_endpoint)
        # The private directory of this worker's sockets.
        directory = Path(command_endpoint.removeprefix("ipc://")).parent
        with followers(settings, directory, configure_logging) as sockets:
            voice = _Voice(events)
            scheduler = _load(settings, directory, sockets, voice)
            profile = _profile(settings.profile, voice)
            # What is loaded by now stays. A collection that walks all of torch's and transformers'
            # objects stops every stream: for 133 ms, measured with bench/scheduler_loop.py.
            gc.collect()
            gc.freeze()
            _Loop(scheduler, commands, voice, settings.log_every_steps, profile).run()
    except ModelError as error:
        log.error("cannot serve this model: %s", error)
        sys.exit(1)
    except Exception:
        log.exception("the scheduler failed")  # in the log's form, not multiprocessing's
        sys.exit(1)
    finally:
        context.destroy(linger=0)


def _load(
    settings: WorkerSettings,
    directory: Path,
    followers: list[zmq.Socket[bytes]],
    voice: "_Voice",
) -> Scheduler:
    # Torch takes seconds to import; nothing before this point needs it.
    from pando_worker.ranks.group import join
    from pando_worker.runner.model_runner import TorchModelRunner
    from pando_worker.runner.threaded import ThreadedRunner

    model = TorchModelRunner(settings, join(settings, 0, directory))
    runner: ModelRunner = LeadingRunner(model, followers) if followers else model
    if settings.overlap_schedule and settings.device == "cpu":
        runner = ThreadedRunner(runner)
    runner = AnnouncingRunner(runner, lambda seconds: voice.say(Working(seconds=seconds)))
    # On the CPU the model needs the cores: there, a thread that fills masks waits for one.
    spare = 1
    if settings.device != "cpu":
        spare = max(1, min(_MASK_THREADS, available_cores() // 2))
    vocab_size = model.config.vocab_size
    grammars = GrammarCompiler(Path(settings.model), vocab_size, mask_threads=spare)
    return make_scheduler(settings, model.pools, runner, grammars)


def _profile(directory: Path | None, voice: "_Voice") -> "StepProfile | None":
    if directory is None:
        return None
    from pando_worker.engine.profile import StepProfile  # imports torch

    return StepProfile(directory, lambda: voice.say(Working(seconds=WRITE_PROFILE_S)))


class _Voice:
    """What the scheduler says to the HTTP process."""

    def __init__(self, events: zmq.Socket[bytes]) -> None:
        self._events = events
        self._encoder = msgspec.msgpack.Encoder()
        parent = multiprocessing.parent_process()
        assert parent is not None, "the scheduler is a child process of the HTTP process"
        self._parent = parent

    @property
    def is_heard(self) -> bool:
        return self._parent.is_alive()

    def say(self, event: Event) -> None:
        """Blocks while the HTTP process cannot take more, but not past its death."""
        data = self._encoder.encode(event)
        while not self._events.poll(POLL_MS, zmq.POLLOUT):
            if not self.is_heard:
                sys.exit(1)
        self._events.send(data)


class _Loop:
    """Drains commands, runs a step, sends what it produced, and again."""

    def __init__(
        self,
        scheduler: Scheduler,
        commands: zmq.Socket[bytes],
        voice: _Voice,
        log_every_steps: int,
        profile: "StepProfile | None",
    ) -> None:
        self._scheduler = scheduler
        self._commands = commands
        self._voice = voice
        self._decoder = msgspec.msgpack.Decoder(Command)
        self._profile = profile
        self._log = StepLog(log_every_steps, scheduler.stats(), time.monotonic())
        self._stats: Stats | None = None
        self._stats_at = 0.0

    def run(self) -> None:
        kv = self._scheduler.kv
        self._voice.say(
            Ready(
                capacity_tokens=kv.capacity_tokens,
                max_running_requests=len(kv.rows.pages),
                max_request_tokens=kv.max_request_tokens,
                page_size=kv.page_size,
            )
        )
        while self._voice.is_heard:
            self._receive()
            for event in self._scheduler.step():
                self._voice.say(event)
            self._send_stats()
            if self._profile and not self._profile.done:
                self._profile.update(self._scheduler.meter.counts.steps_total)

    def _receive(self) -> None:
        """Take in all commands that have arrived; when idle, wait for one."""
        timeout = POLL_MS if self._scheduler.is_idle else int(self._scheduler.only_compiles)
        while self._commands.poll(timeout):
            command = self._decoder.decode(self._commands.recv())
            for event in self._scheduler.receive(command):
                self._voice.say(event)
            timeout = 0

    def _send_stats(self) -> None:
        now = time.monotonic()
        if now - self._stats_at < STATS_MIN_S:
            return
        stats = self._scheduler.stats()
        self._log.update(stats, now)
        if stats != self._stats or now - self._stats_at >= STATS_MAX_S:
            self._voice.say(stats)
            self._stats, self._stats_at = stats, now
