"""A scheduler process without a model: says what the real one says, and fails when told to.

Its output repeats the prompt, one token a step. A request's seed tells it to misbehave: `Trick`.
"""

import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import msgspec
import zmq

from pando_worker.messages import (
    Abort,
    CacheFlushed,
    Command,
    Event,
    FinishReason,
    FlushCache,
    Generate,
    Output,
    Outputs,
    Ready,
    Rejected,
    Stats,
)
from pando_worker.settings import WorkerSettings

CONTEXT = 256
LONG_LOAD = "long-load"  # a pool name that makes it load until it is killed
BROKEN_LOAD = "broken-load"


class Trick(IntEnum):
    SLOW = 1001  # 20 ms a token
    QUEUED = 1002  # waits for ever
    BUSY = 1003  # rejected: the queue is full
    FAILS = 1004  # rejected after its second token
    DIES = 1005  # takes the process with it at its third token
    TOGETHER = 1006  # all tokens in one output


@dataclass(slots=True)
class _Running:
    command: Generate
    cached: int
    sent: int = 0
    due: float = 0.0


def run_stand_in(
    settings: WorkerSettings,
    command_endpoint: str,
    event_endpoint: str,
    configure_logging: Callable[[], None],
) -> None:
    configure_logging()
    if settings.pool == BROKEN_LOAD:
        sys.exit(1)
    context = zmq.Context()
    commands, events = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    commands.bind(command_endpoint)
    events.connect(event_endpoint)
    if settings.pool == LONG_LOAD:
        while _parent_lives():
            time.sleep(0.05)
        return
    try:
        _StandIn(commands, events).run()
    finally:
        context.destroy(linger=0)


def _parent_lives() -> bool:
    """By the parent's sentinel: asking for its pid would miss a death before the first asking."""
    parent = multiprocessing.parent_process()
    return parent is not None and parent.is_alive()


class _StandIn:
    def __init__(self, commands: zmq.Socket[bytes], events: zmq.Socket[bytes]) -> None:
        self._commands = commands
        self._events = events
        self._decoder = msgspec.msgpack.Decoder(Command)
        self._running: dict[str, _Running] = {}
        self._seen: deque[list[int]] = deque(maxlen=64)
        self._prompt_tokens = self._cached_tokens = self._output_tokens = 0
        self._finished = self._aborted = 0
        self._stats: Stats | None = None
        self._stats_at = 0.0

    def run(self) -> None:
        ready = Ready(
            capacity_tokens=4096, max_running_requests=8, max_request_tokens=CONTEXT, page_size=16
        )
        self._send(ready)
        while _parent_lives():
            if self._commands.poll(2 if self._running else 50):
                self._receive(self._decoder.decode(self._commands.recv()))
            outputs = [
                out for running in list(self._running.values()) for out in self._step(running)
            ]
            if outputs:
                self._send(Outputs(outputs))
            self._send_stats()

    def _receive(self, command: Command) -> None:
        match command:
            case Generate(rid=rid, sampling=sampling) if sampling.seed == Trick.BUSY:
                self._send(Rejected(rid=rid, status=503, message="many requests are waiting"))
            case Generate(rid=rid, input_ids=prompt):
                cached = len(prompt) - 1 if prompt in self._seen else 0
                self._seen.append(prompt)
                self._prompt_tokens += len(prompt)
                self._cached_tokens += cached
                self._running[rid] = _Running(command, cached)
            case Abort(rid=rid):
                if running := self._running.pop(rid, None):
                    self._aborted += 1
                    self._send(Outputs([self._output(running, [], FinishReason.ABORT)]))
            case FlushCache(call=call):
                if done := not self._running:
                    self._seen.clear()
                self._send(CacheFlushed(call=call, done=done))

    def _step(self, running: _Running) -> list[Output]:
        """The request's next token, if it is due."""
        command, sampling = running.command, running.command.sampling
        if sampling.seed == Trick.QUEUED or time.monotonic() < running.due:
            return []
        if sampling.seed == Trick.SLOW:
            running.due = time.monotonic() + 0.02
        if sampling.seed == Trick.DIES and running.sent == 2:
            os._exit(3)
        if sampling.seed == Trick.FAILS and running.sent == 2:
            del self._running[command.rid]
            self._send(Rejected(rid=command.rid, status=500, message="it failed while running"))
            return []
        tokens: list[int] = []
        finish = None
        while finish is None and (not tokens or sampling.seed == Trick.TOGETHER):
            tokens.append(command.input_ids[running.sent % len(command.input_ids)])
            running.sent += 1
            if tokens[-1] in sampling.stop_token_ids:
                finish = FinishReason.STOP
            elif running.sent == sampling.max_new_tokens:
                finish = FinishReason.LENGTH
        self._output_tokens += len(tokens)
        if finish:
            self._finished += 1
            del self._running[command.rid]
        return [self._output(running, tokens, finish)]

    def _output(self, running: _Running, tokens: list[int], finish: FinishReason | None) -> Output:
        return Output(
            rid=running.command.rid,
            token_ids=tokens,
            cached_tokens=running.cached,
            finish=finish,
        )

    def _send_stats(self) -> None:
        now = time.monotonic()
        stats = Stats(
            running=len(self._running),
            waiting=0,
            waiting_tokens=0,
            capacity_tokens=4096,
            pinned_tokens=sum(len(r.command.input_ids) + r.sent for r in self._running.values()),
            cached_tokens=sum(map(len, self._seen)),
            prefill_tokens_per_s=1000.0,
            decode_tokens_per_s=100.0,
            release_tokens_per_s=10.0,
            steps_total=0,
            prompt_tokens_total=self._prompt_tokens,
            cached_prompt_tokens_total=self._cached_tokens,
            output_tokens_total=self._output_tokens,
            finished_requests_total=self._finished,
            aborted_requests_total=self._aborted,
            retracted_requests_total=0,
            evicted_tokens_total=0,
        )
        if stats != self._stats or now - self._stats_at >= 0.5:
            self._send(stats)
            self._stats, self._stats_at = stats, now

    def _send(self, event: Event) -> None:
        while not self._events.poll(50, zmq.POLLOUT):
            if not _parent_lives():
                sys.exit(1)
        self._events.send(msgspec.msgpack.encode(event))
