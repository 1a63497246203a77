"""A scheduler process without a model: sends the same events as the real one, and fails on request.

Its output repeats the prompt, one token per step, with log-probabilities from `score`. A request's
seed, in thousands, selects a misbehaviour, its `Trick`, so all choices of a request have the same
trick. An embedding is `vector` of its prompt; its trick is the one whose `trick_token` is its only
token. It takes any adapter; its identity is a hash of the path.
"""

import multiprocessing
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

import msgspec
import numpy as np
import zmq

from pando_worker.messages import (
    Abort,
    AdapterDone,
    AdapterLoaded,
    CacheFlushed,
    Command,
    Embed,
    Embedded,
    Event,
    FinishReason,
    FlushCache,
    Generate,
    LoadAdapter,
    Loading,
    Output,
    Outputs,
    PinAdapter,
    Ready,
    Rejected,
    SamplingParams,
    TokenLogprob,
    UnloadAdapter,
)
from pando_worker.progress import Stage
from pando_worker.settings import WorkerSettings
from pando_worker.stats import Stats
from pando_worker.wire import CommandReceiver

CONTEXT = 256
WAITING_OUTPUT, HOT_EVICTED = 12, 34  # constant values in its Stats
LONG_LOAD = "long-load"  # a pool name that makes it load until it is killed
BROKEN_LOAD = "broken-load"


class Trick(IntEnum):
    SLOW = 1000  # 20 ms per token
    QUEUED = 2000  # waits for ever
    BUSY = 3000  # rejected: the queue is full
    FAILS = 4000  # rejected after its second token
    DIES = 5000  # takes the process with it at its third token
    TOGETHER = 6000  # all tokens in one output
    ROTATED = 7000  # repeats the prompt from token `seed - ROTATED` on
    SECOND_FAILS = 8000  # the choice with seed + 1 is rejected after its second token
    SHOWN = 9000  # rejected with the command as JSON for a message
    ANSWERS = 10000  # repeats a chat's last message, and ends with it
    LOCKS = 11000  # hangs in a deadlock
    FAILS_LATER = 12000  # rejected at a flush: so after its client has read what it wanted


def trick_of(sampling: SamplingParams) -> Trick | None:
    thousands = sampling.seed // 1000 * 1000
    if thousands == Trick.SECOND_FAILS:
        return Trick.FAILS if sampling.seed % 1000 == 1 else Trick.SLOW
    return Trick(thousands) if thousands in list(Trick) else None


def trick_token(trick: Trick) -> int:
    return trick // 10


def score(token_id: int, top: int) -> TokenLogprob:
    """A token's log-probability depends only on its id, and the likeliest are its neighbours."""
    ids = [token_id + i for i in range(top)]
    return TokenLogprob(-(1 + token_id % 5) / 4, ids, [-0.25 - i for i in range(top)])


def vector(prompt: list[int]) -> list[float]:
    """A prompt's embedding: length 1, different for each prompt."""
    numbers = np.array([len(prompt), sum(prompt), prompt[0], prompt[-1] + 1], dtype=np.float64)
    return [float(number) for number in numbers / np.linalg.norm(numbers)]


@dataclass(slots=True)
class _Running:
    command: Generate
    cached: int
    deadline: float
    start: int = 0  # in the prompt: where the output begins
    sent: int = 0
    due: float = 0.0


def _last_message(prompt: list[int]) -> int:
    """Where the shipped template puts the last message's text: the prompt ends with the token that
    precedes every message's text."""
    *before, opening = prompt
    return len(before) - before[::-1].index(opening)


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
        half = Loading(stage=Stage.WEIGHTS, done=0.5)
        events.send(msgspec.msgpack.encode(half))
        while _parent_lives():
            time.sleep(0.05)
        return
    try:
        _StandIn(commands, events, settings.context_length or CONTEXT).run()
    finally:
        context.destroy(linger=0)


def _parent_lives() -> bool:
    """Uses the parent's sentinel; polling its pid would miss a death before the first poll."""
    parent = multiprocessing.parent_process()
    return parent is not None and parent.is_alive()


def _lock_for_ever() -> None:
    lock = threading.Lock()
    for _ in range(2):
        lock.acquire()


class _StandIn:
    def __init__(
        self, commands: zmq.Socket[bytes], events: zmq.Socket[bytes], context: int
    ) -> None:
        self._context = context
        self._commands = commands
        self._events = events
        self._receiver = CommandReceiver(commands)
        self._running: dict[str, _Running] = {}
        self._embedding: dict[str, float] = {}  # those that end only by their deadline
        self._seen: deque[list[int]] = deque(maxlen=64)
        self._prompt_tokens = self._cached_tokens = self._output_tokens = 0
        self._finished = self._aborted = 0
        self._stats: Stats | None = None
        self._stats_at = 0.0

    def run(self) -> None:
        ready = Ready(
            capacity_tokens=4096,
            max_running_requests=8,
            max_request_tokens=self._context,
            page_size=16,
        )
        self._send(ready)
        while _parent_lives():
            if self._commands.poll(2 if self._running or self._embedding else 50):
                self._receive(self._receiver.receive())
            outputs = [
                out for running in list(self._running.values()) for out in self._step(running)
            ]
            if outputs:
                self._send(Outputs(outputs))
            self._end_late_embeddings()
            self._send_stats()

    def _receive(self, command: Command) -> None:
        match command:
            case Generate(rid=rid, sampling=sampling) if trick_of(sampling) is Trick.BUSY:
                self._send(Rejected(rid=rid, status=503, message="many requests are waiting"))
            case Generate(rid=rid, sampling=sampling) if trick_of(sampling) is Trick.SHOWN:
                shown = msgspec.json.encode(command).decode()
                self._send(Rejected(rid=rid, status=400, message=shown))
            case Generate(rid=rid, input_ids=prompt):
                cached = len(prompt) - 1 if prompt in self._seen else 0
                self._seen.append(prompt)
                self._prompt_tokens += len(prompt)
                self._cached_tokens += cached
                patience = float("inf") if command.deadline_s is None else command.deadline_s
                self._running[rid] = _Running(command, cached, time.monotonic() + patience)
                if trick_of(command.sampling) is Trick.ANSWERS:
                    self._running[rid].start = _last_message(prompt)
            case Embed():
                self._embed(command)
            case Abort(rid=rid) if self._embedding.pop(rid, None):
                self._aborted += 1
                aborted = Output(rid=rid, token_ids=[], cached_tokens=0, finish=FinishReason.ABORT)
                self._send(Outputs([aborted]))
            case Abort(rid=rid):
                if running := self._running.pop(rid, None):
                    self._aborted += 1
                    self._send(Outputs([self._output(running, [], FinishReason.ABORT)]))
            case FlushCache(call=call):
                if done := not self._running and not self._embedding:
                    self._seen.clear()
                for running in list(self._running.values()):
                    if trick_of(running.command.sampling) is Trick.FAILS_LATER:
                        self._reject(running, 500, "it failed while running")
                self._send(CacheFlushed(call=call, done=done))
            case LoadAdapter(call=call, path=path):
                identity = blake2b(path.encode(), digest_size=16).digest()
                self._send(AdapterLoaded(call=call, identity=identity, rank=8))
            case PinAdapter(call=call) | UnloadAdapter(call=call):
                self._send(AdapterDone(call=call))

    def _embed(self, command: Embed) -> None:
        rid, prompt = command.rid, command.input_ids
        match prompt:
            case [token] if token == trick_token(Trick.BUSY):
                self._send(Rejected(rid=rid, status=503, message="many requests are waiting"))
            case [token] if token == trick_token(Trick.SHOWN):
                shown = msgspec.json.encode(command).decode()
                self._send(Rejected(rid=rid, status=400, message=shown))
            case [token] if token == trick_token(Trick.QUEUED):
                patience = command.deadline_s or float("inf")
                self._embedding[rid] = time.monotonic() + patience
            case _:
                cached = len(prompt) - 1 if prompt in self._seen else 0
                self._seen.append(prompt)
                numbers = np.array(vector(prompt), dtype="<f4").tobytes()
                embedded = Embedded(rid=rid, vector=numbers, cached_tokens=cached, queue_s=0.25)
                self._send(embedded)

    def _end_late_embeddings(self) -> None:
        now = time.monotonic()
        for rid in [rid for rid, end in self._embedding.items() if end <= now]:
            del self._embedding[rid]
            self._send(Rejected(rid=rid, status=504, message="its time has passed"))

    def _step(self, running: _Running) -> list[Output]:
        """The request's next token, if it is due."""
        command, sampling = running.command, running.command.sampling
        trick = trick_of(sampling)
        if time.monotonic() >= running.deadline:
            return self._reject(running, 504, "its time has passed")
        if trick is Trick.QUEUED or time.monotonic() < running.due:
            return []
        if trick in (Trick.SLOW, Trick.FAILS_LATER):
            running.due = time.monotonic() + 0.02
        if trick is Trick.DIES and running.sent == 2:
            os._exit(3)
        if trick is Trick.LOCKS:
            _lock_for_ever()
        if trick is Trick.FAILS and running.sent == 2:
            return self._reject(running, 500, "it failed while running")
        tokens: list[int] = []
        finish = None
        start = sampling.seed % 1000 if trick is Trick.ROTATED else running.start
        while finish is None and (not tokens or trick is Trick.TOGETHER):
            tokens.append(command.input_ids[(start + running.sent) % len(command.input_ids)])
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

    def _reject(self, running: _Running, status: int, message: str) -> list[Output]:
        del self._running[running.command.rid]
        self._send(Rejected(rid=running.command.rid, status=status, message=message))
        return []

    def _output(self, running: _Running, tokens: list[int], finish: FinishReason | None) -> Output:
        first = running.sent == len(tokens)
        output = Output(
            rid=running.command.rid,
            token_ids=tokens,
            cached_tokens=running.cached,
            finish=finish,
            queue_s=0.25 if first else None,
        )
        wanted, prompt = running.command.logprobs, running.command.input_ids
        if wanted is None:
            return output
        scored = None if wanted.prompt_start is None else max(1, wanted.prompt_start)
        told = [] if scored is None or not first else prompt[scored:]
        return msgspec.structs.replace(
            output,
            logprobs=[score(token, wanted.top) for token in tokens],
            prompt_logprobs=[score(token, wanted.top) for token in told],
        )

    def _send_stats(self) -> None:
        now = time.monotonic()
        stats = Stats(
            running=len(self._running) + len(self._embedding),
            waiting_output_tokens=WAITING_OUTPUT,
            capacity_tokens=4096,
            pinned_tokens=sum(len(r.command.input_ids) + r.sent for r in self._running.values()),
            cached_tokens=sum(map(len, self._seen)),
            prefill_tokens_per_s=1000.0,
            decode_tokens_per_s=100.0,
            release_tokens_per_s=10.0,
            prompt_tokens_total=self._prompt_tokens,
            cached_prompt_tokens_total=self._cached_tokens,
            output_tokens_total=self._output_tokens,
            finished_requests_total=self._finished,
            aborted_requests_total=self._aborted,
            hot_evicted_tokens_total=HOT_EVICTED,
        )
        if stats != self._stats or now - self._stats_at >= 0.5:
            self._send(stats)
            self._stats, self._stats_at = stats, now

    def _send(self, event: Event) -> None:
        while not self._events.poll(50, zmq.POLLOUT):
            if not _parent_lives():
                sys.exit(1)
        self._events.send(msgspec.msgpack.encode(event))
