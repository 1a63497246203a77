"""Each script's keys and arguments: a call is one of these structs, and Lua reads it by field
names.

Fields that are a `Key` come first; they are the script's KEYS, the others its ARGV. Arguments of
variable number, such as the prompts to place, follow. Structs, because they are created three times
as fast as named tuples.
"""

from typing import Annotated, TypeVar

import msgspec

from pando_fleet.redis.layout.constants import MarkKind, MarkState, Mode

Key = Annotated[str, "a key"]
Now = Annotated[int | str, "milliseconds by the caller's clock, or '' for Redis's own"]
Flag = Annotated[int, "1 or 0"]

Call = TypeVar("Call", bound=msgspec.Struct)


class Beat(msgspec.Struct, frozen=True, gc=False):
    """Records a heartbeat. `Terms` follow; beat.lua fills in `oldest_touch_ms`. `slots` is an
    ADAPTERS, empty if it has no adapters; `held` the short key of each that is not on disk only,
    each followed by a `Held`.

    Answers nil; or "taken", the URL of the living owner of this name and its last heartbeat's time,
    and then records nothing; or "wanted" and the URL of another one that was refused this name.
    """

    replicas: Key
    beats: Key
    terms: Key
    adapters: Key
    tree: Key
    marks: Key
    rival: Key
    now: Now
    replica: str
    heartbeat: bytes
    is_ready: Flag
    slots: bytes
    held: str


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Lists a pool. Separate from `Beat`, because this key is in another slot."""

    pools: Key
    now: Now
    pool: str


class ListPools(msgspec.Struct, frozen=True, gc=False):
    """Answers when the retention began, the pools heard of since, and those not heard of."""

    pools: Key
    now: Now


class ForgetPool(msgspec.Struct, frozen=True, gc=False):
    """Removes what routers left behind of a pool without replicas. Answers 1, or 0 if there are
    unexpired leases."""

    routers: Key
    leases: Key
    parts: Key
    loads: Key
    queues: Key
    now: Now


class ForgetNames(msgspec.Struct, frozen=True, gc=False):
    """Removes the names that follow, of pools that were not heard of later."""

    pools: Key
    heard_ms: int


class CheckWrites(msgspec.Struct, frozen=True, gc=False):
    """Writes nothing, but is refused if Redis refuses writes."""

    replicas: Key


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Removes a replica, unless a newer incarnation has taken its name. Its leases end with their
    requests."""

    replicas: Key
    beats: Key
    terms: Key
    adapters: Key
    tree: Key
    replica: str
    incarnation: str


class Replicas(msgspec.Struct, frozen=True, gc=False):
    """Answers for each replica its name, age in ms, heartbeat, the mark that withholds it ('' for
    none), and why its terms cannot be read ('' if they can)."""

    replicas: Key
    beats: Key
    terms: Key
    adapters: Key
    marks: Key
    now: Now


class Place(msgspec.Struct, frozen=True, gc=False):
    """Decides for each `Prompt` that follows, and reserves a replica unless only asked to explain.

    Answers for each prompt PLACED, of the chosen replica, or a list of that and every CANDIDATE;
    nil if there is none, FULL if all allowed replicas are at their limit of requests, HELD_BACK and
    CROWDED in a list if its session must wait. To explain, one prompt is sent, and the answer is
    its candidates; or, of its session alone, a list of CROWDED or nothing.
    """

    replicas: Key
    terms: Key
    adapters: Key
    leases: Key
    parts: Key
    loads: Key
    sessions: Key
    now: Now
    mode: Mode
    tree_prefix: str


class Prompt(msgspec.Struct, frozen=True, gc=False):
    path: bytes
    prompt_tokens: int
    output_tokens: int
    lease: str
    lease_ms: int
    tie: int  # where among equals the search begins
    max_outstanding: int  # at one replica; 0: no limit
    every: Flag  # answer each candidate
    bounds_sessions: Flag  # the working set of the pool's sessions is counted
    may_wait: Flag  # it is held back if the working set has no room for its session
    session: str  # the digest of its session's name, or ''
    only: str  # the only replica allowed, or ''
    adapter: str  # the key of the adapter that it needs, or ''
    excluded: int  # the number of replicas' names, which follow


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Runs operations that nobody waits for; each follows its name."""

    leases: Key
    parts: Key
    loads: Key
    now: Now
    tree_prefix: str
    ledger_prefix: str


class Touch(msgspec.Struct, frozen=True, gc=False):
    owner: str
    path: bytes
    guess: int  # chunks held when placed
    capacity: int  # of the tree, in chunks
    tenant: str  # owner of the bounded ledger, or ''
    share: int  # the tenant's part of the capacity, in chunks


class Cut(msgspec.Struct, frozen=True, gc=False):
    owner: str
    path: bytes
    depth: int  # chunks to keep
    tenant: str


class Prefilled(msgspec.Struct, frozen=True, gc=False):
    lease: str


class Renew(msgspec.Struct, frozen=True, gc=False):
    """The whole lease as its router knows it, which restores what Redis lost of it."""

    lease: str
    lasts_ms: int  # from now
    part: bytes  # a PART


class Release(msgspec.Struct, frozen=True, gc=False):
    lease: str


Operation = Touch | Cut | Prefilled | Renew | Release
OPERATIONS: dict[type[Operation], str] = {
    kind: kind.__name__.lower() for kind in (Touch, Cut, Prefilled, Renew, Release)
}


class BeatRouter(msgspec.Struct, frozen=True, gc=False):
    """Records that a router is alive, and repairs sums of leases that do not match their parts.

    Answers 1 if Redis no longer knew this router, so that its leases may be lost, otherwise 0; then
    the names of dead routers.
    """

    routers: Key
    leases: Key
    parts: Key
    loads: Key
    now: Now
    router: str


class Reap(msgspec.Struct, frozen=True, gc=False):
    """Ends some leases of a dead router. Answers the next cursor, "0" at the end, and how many it
    ended; nil if the router is alive after all, or was already reaped."""

    routers: Key
    leases: Key
    parts: Key
    loads: Key
    queues: Key
    now: Now
    router: str
    cursor: str  # of ZSCAN; "0" at first


class ReadLoads(msgspec.Struct, frozen=True, gc=False):
    """Answers pairs of owner and requests leased to it."""

    routers: Key
    leases: Key
    parts: Key
    loads: Key
    now: Now


class TouchTree(msgspec.Struct, frozen=True, gc=False):
    tree: Key
    now: Now
    path: bytes
    capacity: int  # chunks


class MatchTree(msgspec.Struct, frozen=True, gc=False):
    """Answers the number of chunks."""

    tree: Key
    path: bytes


class CutTree(msgspec.Struct, frozen=True, gc=False):
    tree: Key
    path: bytes
    depth: int  # chunks to keep


class WeighTree(msgspec.Struct, frozen=True, gc=False):
    """Answers, as text, how many chunks only the first tree holds, each weighted by 0.5 to the
    power of its age over the half-life. The trees of the others are further keys."""

    tree: Key
    now: Now
    half_life_ms: int
    most: int  # most members to read


class SetMark(msgspec.Struct, frozen=True, gc=False):
    """Answers 1, or 0 if a mark of this kind is active there: only a drain mark is renewed."""

    marks: Key
    terms: Key
    now: Now
    kind: MarkKind
    replica: str
    budget_tokens: int
    lasts_ms: int


class ClaimMark(msgspec.Struct, frozen=True, gc=False):
    """Answers the milliseconds left to the mark, and its JSON, if it is open or its claim is this
    router's or has expired; otherwise nil."""

    marks: Key
    now: Now
    kind: MarkKind
    replica: str
    router: str


class ReportMark(msgspec.Struct, frozen=True, gc=False):
    """Adds tokens and prefixes. Answers 1, or 0 if the mark is over or not this router's."""

    marks: Key
    now: Now
    kind: MarkKind
    replica: str
    router: str
    tokens: int
    prefixes: int
    state: MarkState
    reason: str


class ListMarks(msgspec.Struct, frozen=True, gc=False):
    """Answers for each mark its name, the milliseconds left to it (nil for an invalid mark), and
    its JSON."""

    marks: Key
    now: Now


class ReportQueue(msgspec.Struct, frozen=True, gc=False):
    """Records the length of one router's queue, and forgets routers that have fallen silent."""

    queues: Key
    now: Now
    router: str
    requests: int
    waited_ms: int  # by the first request
    tokens: int


class ReadQueues(msgspec.Struct, frozen=True, gc=False):
    """Answers the time, and for each queue its router and QUEUE."""

    queues: Key
    now: Now


class Agree(msgspec.Struct, frozen=True, gc=False):
    """What the routers that probe a foreign engine agree on: its incarnation and its speed. Each
    rate is the router's own value and the number of its new samples.

    Answers incarnation, prefill rate, decode rate, bytes per token.
    """

    record: Key
    identity: str
    proposed: str  # incarnation
    prefill: float
    prefill_samples: int
    decode: float
    decode_samples: int
    bytes_per_token: float
    bytes_per_token_samples: int


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The process of an incarnation has ended: its successor has a new one, but the same rates."""

    record: Key
    incarnation: str  # '' for any


class RememberHome(msgspec.Struct, frozen=True, gc=False):
    """Records which replica answered under the names that follow, and forgets the least recently
    used if there are too many."""

    ages: Key
    homes: Key
    now: Now
    incarnation: str
    max_names: int


class TakeLimit(msgspec.Struct, frozen=True, gc=False):
    """Takes from both of a tenant's buckets, or from neither.

    Answers for requests and for tokens: amount left, ms until full, ms to wait (0: it was enough).
    More tokens than a full bucket take the full bucket.
    """

    buckets: Key
    now: Now
    request_limit: int  # per minute; 0: none
    token_limit: int
    tokens: int


class SettleLimit(msgspec.Struct, frozen=True, gc=False):
    """Takes what a tenant used beyond its reservation, or returns what it did not use."""

    buckets: Key
    now: Now
    token_limit: int  # per minute
    tokens: int  # negative: given back
