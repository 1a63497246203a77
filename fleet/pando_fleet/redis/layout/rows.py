"""The rows that scripts keep in Redis, and the packed parts of their answers.

Numbers in rows are doubles, like Lua's own.
"""

from typing import NamedTuple

import msgspec

from pando_fleet.redis.layout.packed import Packed


class Terms(NamedTuple):
    """What a ready replica reports to placement, by its name in the hash `terms`; read by
    `lua/placement/fleet_ops.lua`, which with `lua/placement/place.lua` computes the cost."""

    capacity_tokens: float
    pinned_tokens: float
    cached_tokens: float
    begun_tokens: float
    begun_context: float
    prefill_tokens_per_s: float
    prefill_context_per_s: float
    doubling_context: float
    decode_tokens_per_s: float
    release_tokens_per_s: float
    bytes_per_token: float
    max_requests: float
    incarnation: str
    url: str
    oldest_touch_ms: float  # of its tree's leaves, set by beat.lua; 0 if the tree is empty


class AdapterTerms(NamedTuple):
    """What a replica with LoRA adapters reports of them to placement, by its name in the hash
    `adapters`; read by `lua/placement/adapter_ops.lua`, for requests that need one. Where each of
    its adapters is stands beside it."""

    free_slots: float
    loading: float  # adapters, one after the other
    ahead: float  # adapters that wait for a slot
    idle_s: float
    load_s: float  # as in heartbeats; 0: not measured
    read_s: float
    slot_wait_s: float
    incarnation: str


class Part(NamedTuple):
    """What one lease reserves, by its id in the hash `parts`."""

    work: float  # prompt tokens to compute, weighed as in place.lua
    room: float  # KV tokens that it will need
    waiting: float  # 1 until the first token
    owner: str  # <incarnation>:<replica>


class Load(NamedTuple):
    """The sums of an owner's parts, by the owner in the hash `loads`."""

    work: float
    room: float
    waiting: float
    requests: float


class SessionRow(NamedTuple):
    """A session, by the key of a chunk of its last prompt in the hash `sessions`; see
    `lua/placement/session_rows.lua`."""

    base: float  # tokens of its prompts that others held when it began
    held: float  # tokens that it holds besides
    since: float  # when its last call was placed, ms
    paused: float  # since when it pauses, ms; 0: its last call runs
    calls: float  # 1: only the first one; 2: it has continued
    waits: float  # 1: it has paused, and its next call waits for room
    lease: str  # of its last call
    name: str  # the digest of the name that this call had, or ''


class WorkingSetRow(NamedTuple):
    """The tokens of all sessions that count, by the empty field of the hash `sessions`."""

    counted: float  # when, ms
    held: float
    sessions: float  # that have a row
    active: float  # of those, whose calls wait for nothing: they run, or paused for a short time
    first_returns: float  # of sessions, after their first call, within their stay
    first_stays: float  # for how many stays they paused then
    later_returns: float  # after a later call
    later_stays: float
    busy: float  # share of the replicas with requests before their first token
    tokens_read: float  # prompts' tokens that sessions read again within their stay
    tokens_stayed: float  # that paused, times the share of their stay that passed
    waited: float  # when a call of a session that returns last had to wait, ms


class QueueRow(NamedTuple):
    """A router's queue, by the router in the hash `queues`."""

    reported_ms: float
    requests: float
    since_ms: float  # when the first one began to wait
    tokens: float


class MarkRow(NamedTuple):
    """A mark as JSON, by "<kind>:<replica>" in the hash `marks`; scripts change it in Redis."""

    kind: str
    replica: str
    budget_tokens: float
    ends_ms: float
    state: str
    router: str
    claim_ends_ms: float
    tokens: float
    prefixes: float
    reason: str


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One replica's terms, as `lua/placement/place.lua` computes them:
    `cost_s` is `wait_s + kv_wait_s + work_s * (1 + queue + coming) + pool_s + evict_s
    + adapter_load_s + adapter_wait_s + adapter_evict_s`."""

    matched_chunks: int
    matched_tokens: int
    backlog_tokens: int  # leased and not yet computed: uncached tokens weighted by their context
    outstanding: int  # requests leased there and not yet ended
    capacity_chunks: int  # of its tree
    capacity_tokens: int  # of its KV pool; 0 if unknown
    pinned_tokens: int  # of those, held by running requests
    wait_s: float
    kv_wait_s: float
    work_s: float
    queue: float  # requests that wait there for their first token
    coming: float  # expected arrivals there while one request arrives per replica
    pool_s: float  # delay of the pool by the prompt's work, if requests wait at each replica
    evict_s: float  # time to compute again what the prompt evicts there
    adapter_load_s: float  # to load the adapter that it needs; 0 if it is there
    adapter_wait_s: float  # until there is a slot for it
    adapter_evict_s: float  # to load again the adapter that gives way to it
    cost_s: float
    full: bool  # it is at its limit of requests, and cannot be chosen
    replica: str
    url: str
    incarnation: str


class Placed(Candidate, frozen=True, gc=False):
    """The chosen one: a placement's answer."""

    work: float  # that the lease reserves, as in `Part`
    room: float
    most_chunks: int  # that any candidate holds of the prompt
    holder_full: bool  # and has all the requests that it may have
    holder: str  # who holds them

    @property
    def candidate(self) -> Candidate:
        """As one among others."""
        return Candidate(*(getattr(self, name) for name in Candidate.__struct_fields__))


class Crowded(msgspec.Struct, frozen=True, gc=False):
    """Why a session's call is not placed: the working set has no room for the session."""

    working_set_tokens: int
    room_tokens: int  # the pool's memory, and what its time to spare is worth
    active: int  # other sessions that go on without waiting
    is_back: bool  # the session is known, but its conversation was evicted
    is_behind: bool  # it is new, and waits behind a session that returns and has no room either


TERMS = Packed("terms", Terms, 4, is_versioned_in_front=True)
ADAPTERS = Packed("adapters", AdapterTerms, 1, is_versioned_in_front=True)
PART = Packed("part", Part, 1)
LOAD = Packed("load", Load, 1)
SESSION = Packed("session", SessionRow, 4)
WORKING_SET = Packed("working_set", WorkingSetRow, 7)
CROWDED = Packed("crowded", Crowded)
QUEUE = Packed("queue", QueueRow, 1)
CANDIDATE = Packed("candidate", Candidate)
PLACED = Packed("placed", Placed)
