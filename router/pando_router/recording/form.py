"""The format of a recording, for the router that writes it and the simulator that reads it.

Chunk keys are hashes without a secret, so anyone with the keys could test guesses of a text, above
all of short prompts. A recording therefore contains each key only hidden behind a secret that no
file contains. Equal beginnings of prompts stay equal, within a recording and among recordings with
the same secret, but guesses cannot be tested.
"""

from enum import StrEnum

import msgspec

from pando_fleet.placement.prefix import CHUNK_BYTES

VERSION = 1

HIDDEN_BYTES = 6
"""Length of a key in a recording; base64 makes it 8 characters. Among a hundred million chunks,
about ten pairs collide: single chunks, of prompts that otherwise differ."""


class Outcome(StrEnum):
    FINISHED = "finished"
    LEFT = "left"  # the client disconnected before the end
    REFUSED = "refused"  # for lack of room, or by a rate limit
    FAILED = "failed"
    INVALID = "invalid"  # the request was invalid, so nothing was computed


class Header(msgspec.Struct, kw_only=True):
    pando_recording: int = VERSION
    started: float  # Unix time, seconds
    chunk_bytes: int = CHUNK_BYTES
    hidden_bytes: int = HIDDEN_BYTES
    router: str = ""  # the router that wrote the file, by a random name
    file: str = ""  # the file's own random name, which its copies keep
    secret: str = ""  # the same where keys have the same secret; tells nothing about it


class Record(msgspec.Struct, omit_defaults=True, gc=False):
    """Times are in seconds. Records are in the order in which requests ended."""

    at: float  # Unix time at which the request had arrived, with its body
    oldest: float  # `at` of the oldest request still running when this one ended
    model: str  # or the LoRA adapter
    prompt_bytes: int  # of the canonical prompt
    prompt_tokens: int  # as the replica reported; otherwise estimated from the bytes
    expected_tokens: int  # expected answer length, before there was an answer
    outcome: Outcome
    status: int
    total_s: float  # from `at` to the answer's end
    pool: str = ""  # empty if it was never placed
    base: str = ""  # the model of the adapter that `model` names
    keys: bytes = b""  # of the prompt's full chunks, hidden; base64
    output_tokens: int = 0  # as the answer reported; otherwise the number of its events
    first_s: float | None = None  # from `at` to the answer's first byte
    matched_tokens: int = 0  # prompt tokens that placement expected cached
    cached_tokens: int | None = None  # prompt tokens that were cached, if the replica reported it
    tries: int = 0
    replica: str = ""  # the last one
    session: str = ""  # the session's name, hidden
    stream: bool = False  # the client wanted the answer as a stream


class Measured(msgspec.Struct, array_like=True):
    """A replica in a `FleetState`: what its last heartbeat said, and by how much its counters have
    grown since the `FleetState` before."""

    replica: str
    capacity_tokens: int
    running: int
    waiting: int
    pinned_tokens: int
    prefill_tokens_per_s: float
    prefill_context_per_s: float
    doubling_context: float
    decode_tokens_per_s: float
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    decoded_tokens: int  # all output tokens but the first of each request
    decode_s: float  # the steps of each of those


class PoolState(msgspec.Struct, kw_only=True, omit_defaults=True):
    model: str = ""
    policy: str  # by which requests are placed
    replicas: int  # that exist: starting, ready, draining
    ready: int = 0
    draining: int = 0
    queued: int = 0  # requests, in this router
    started: list[tuple[str, float]] = []  # replicas that became ready, after how many seconds
    measured: list[Measured] = []  # at most MEASURED_REPLICAS of the ready ones, in turn


class FleetState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fleet as a router saw it: a line of a recording, every `STATE_S` seconds."""

    fleet_at: float  # Unix time
    router: str
    since_s: float = 0.0  # for which counters have grown; 0 in a router's first line
    unrecorded: int = 0  # requests in that time that should be in the recording and are not
    pools: dict[str, PoolState]


STATE_S = 20.0
MEASURED_REPLICAS = 16
