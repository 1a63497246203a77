"""Each script's keys and arguments: a call is one of these structs, and Lua reads it by its names.

Fields that are a `Key` come first; they are the script's KEYS, and the others its ARGV. What a
script takes more of, such as the prompts to place, follows as further arguments. Structs, because
they are made three times as fast as named tuples.
"""

from typing import Annotated, TypeVar

import msgspec

from pando_fleet.redis.layout.constants import MarkKind, MarkState, Mode

Key = Annotated[str, "a key"]
Now = Annotated[int | str, "milliseconds of a clock of the caller's, or '' for Redis's own"]
Flag = Annotated[int, "1 or 0"]

Call = TypeVar("Call", bound=msgspec.Struct)


class Beat(msgspec.Struct, frozen=True, gc=False):
    """Records a heartbeat. `Terms` follow, of which beat.lua fills in `oldest_touch_ms`.

    Answers nil; or "taken", the URL of the one that lives under this name and when it was heard,
    and then nothing is recorded; or "wanted" and the URL of another one that was told so.
    """

    replicas: Key
    beats: Key
    terms: Key
    tree: Key
    marks: Key
    rival: Key
    now: Now
    replica: str
    heartbeat: bytes
    is_ready: Flag


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Lists a pool. Apart from `Beat`: this key is in another slot."""

    pools: Key
    now: Now
    pool: str


class ListPools(msgspec.Struct, frozen=True, gc=False):
    """Answers when the retention began, the pools heard of since, and those that were not."""

    pools: Key
    now: Now


class ForgetPool(msgspec.Struct, frozen=True, gc=False):
    """Removes what routers left behind of a pool without replicas. Answers 1, or 0 while there are
    leases whose time is not over."""

    routers: Key
    leases: Key
    parts: Key
    loads: Key
    queues: Key
    now: Now


class ForgetNames(msgspec.Struct, frozen=True, gc=False):
    """Removes those names that follow of pools that were not heard of later."""

    pools: Key
    heard_ms: int


class CheckWrites(msgspec.Struct, frozen=True, gc=False):
    """Writes nothing, as a command that is refused where writes are."""

    replicas: Key


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Removes a replica, unless a newer incarnation has taken its name. Its leases end with their
    requests."""

    replicas: Key
    beats: Key
    terms: Key
    tree: Key
    replica: str
    incarnation: str


class Replicas(msgspec.Struct, frozen=True, gc=False):
    """Answers name, age in ms, heartbeat, the mark that withholds it ('' for none), and why its
    terms cannot be read ('' where they can), of each replica."""

    replicas: Key
    beats: Key
    terms: Key
    marks: Key
    now: Now


class Place(msgspec.Struct, frozen=True, gc=False):
    """Decides for each of the `Prompt`s that follow, and reserves it unless only asked to explain.

    Answers for each prompt PLACED, of the chosen replica, or a list of that and every CANDIDATE;
    nil where there is none, FULL where all that are allowed have the most requests. To explain, one
    prompt is asked, and each of its candidates is answered.
    """

    replicas: Key
    terms: Key
    leases: Key
    parts: Key
    loads: Key
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
    max_outstanding: int  # at one replica; 0: any number
    every: Flag  # each candidate is answered
    only: str  # the only replica allowed, or ''
    excluded: int  # names of replicas, which follow


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Writes what no answer waited for: the operations that follow, each behind its name."""

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
    tenant: str  # whose ledger is bounded, or ''
    share: int  # of the capacity that is the tenant's, in chunks


class Cut(msgspec.Struct, frozen=True, gc=False):
    owner: str
    path: bytes
    depth: int  # chunks that stay
    tenant: str


class Prefilled(msgspec.Struct, frozen=True, gc=False):
    lease: str


class Renew(msgspec.Struct, frozen=True, gc=False):
    """The whole lease as its router knows it, so that what Redis lost of it is there again."""

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
    """Records that a router lives, and mends sums of leases that do not agree with their parts.

    Answers 1 where Redis did not know this router any more, so that its leases may be gone, else 0;
    then routers that are dead.
    """

    routers: Key
    leases: Key
    parts: Key
    loads: Key
    now: Now
    router: str


class Reap(msgspec.Struct, frozen=True, gc=False):
    """Ends some leases of a dead router. Answers the next cursor, "0" at the end, and how many it
    ended; nil where the router lives after all, or has been reaped."""

    routers: Key
    leases: Key
    parts: Key
    loads: Key
    queues: Key
    now: Now
    router: str
    cursor: str  # of ZSCAN; "0" to begin


class ReadLoads(msgspec.Struct, frozen=True, gc=False):
    """Answers owner, requests leased to it, and so on."""

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
    """Answers chunks."""

    tree: Key
    path: bytes


class CutTree(msgspec.Struct, frozen=True, gc=False):
    tree: Key
    path: bytes
    depth: int  # chunks that stay


class WeighTree(msgspec.Struct, frozen=True, gc=False):
    """Answers, as text, how many chunks only the first tree holds, each counted as 0.5 to the power
    of its age over the half-life. The trees of the others are further keys."""

    tree: Key
    now: Now
    half_life_ms: int
    most: int  # members to look at


class SetMark(msgspec.Struct, frozen=True, gc=False):
    """Answers 1, or 0 where a mark of this kind is at work there: only a drain mark is renewed."""

    marks: Key
    terms: Key
    now: Now
    kind: MarkKind
    replica: str
    budget_tokens: int
    lasts_ms: int


class ClaimMark(msgspec.Struct, frozen=True, gc=False):
    """Answers the milliseconds left to the mark, and its JSON, where it is open, or its claim is
    this router's or has ended; or nil."""

    marks: Key
    now: Now
    kind: MarkKind
    replica: str
    router: str


class ReportMark(msgspec.Struct, frozen=True, gc=False):
    """Adds tokens and prefixes. Answers 1, or 0 where the mark is over or not this router's."""

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
    """Answers for each mark its name, the milliseconds left to it (nil for what is no mark), and
    its JSON."""

    marks: Key
    now: Now


class TellQueue(msgspec.Struct, frozen=True, gc=False):
    """Records how long one router's queue is, and forgets routers that have fallen silent."""

    queues: Key
    now: Now
    router: str
    requests: int
    waited_ms: int  # by the first one
    tokens: int


class ReadQueues(msgspec.Struct, frozen=True, gc=False):
    """Answers the time, and router and QUEUE of each queue."""

    queues: Key
    now: Now


class Agree(msgspec.Struct, frozen=True, gc=False):
    """What routers that probe the same foreign engine agree on: which incarnation it is, and how
    fast. Each rate is what the router found, and in how many new samples.

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
    """The process behind an incarnation has ended: its successor is another one, and as fast."""

    record: Key
    incarnation: str  # '' for whichever it is


class RememberHome(msgspec.Struct, frozen=True, gc=False):
    """Remembers who answered under the names that follow, and forgets those used longest ago where
    there are too many."""

    ages: Key
    homes: Key
    now: Now
    incarnation: str
    max_names: int


class TakeLimit(msgspec.Struct, frozen=True, gc=False):
    """Takes from both of a tenant's buckets, or from none of them.

    Answers for requests and for tokens: left, ms until full, ms to wait for (0: there was enough).
    More tokens than a full bucket has take all of it.
    """

    buckets: Key
    now: Now
    request_limit: int  # a minute; 0: none
    token_limit: int
    tokens: int


class SettleLimit(msgspec.Struct, frozen=True, gc=False):
    """Takes what a tenant used beyond what it had reserved, or gives back what it did not use."""

    buckets: Key
    now: Now
    token_limit: int  # a minute
    tokens: int  # negative: given back


SCRIPTS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Beat: ("clock", "tree_ops", "memory_ops", "mark_ops", "replica_ops", "terms", "beat"),
    Announce: ("clock", "announce"),
    ListPools: ("clock", "pools_list"),
    ForgetPool: ("clock", "lease_ops", "pool_forget"),
    ForgetNames: ("pools_forget",),
    CheckWrites: ("check_writes",),
    Leave: ("leave",),
    Replicas: ("clock", "mark_ops", "replica_ops", "terms", "replicas"),
    Place: ("clock", "tree_ops", "lease_ops", "terms", "fleet_ops", "place"),
    Settle: ("clock", "tree_ops", "memory_ops", "lease_ops", "settle"),
    BeatRouter: ("clock", "lease_ops", "router_beat"),
    Reap: ("clock", "lease_ops", "router_reap"),
    ReadLoads: ("clock", "lease_ops", "loads_read"),
    TouchTree: ("clock", "tree_ops", "tree_touch"),
    MatchTree: ("tree_ops", "tree_match"),
    CutTree: ("tree_ops", "tree_cut"),
    WeighTree: ("clock", "tree_ops", "tree_worth"),
    SetMark: ("clock", "mark_ops", "mark_set"),
    ClaimMark: ("clock", "mark_ops", "mark_claim"),
    ReportMark: ("clock", "mark_ops", "mark_report"),
    ListMarks: ("clock", "mark_ops", "mark_list"),
    TellQueue: ("clock", "queue_ops", "queue_tell"),
    ReadQueues: ("clock", "queue_read"),
    Agree: ("upstream_agree",),
    Ended: ("upstream_ended",),
    RememberHome: ("clock", "remember_home"),
    TakeLimit: ("clock", "limit_ops", "limit_take"),
    SettleLimit: ("clock", "limit_ops", "limit_settle"),
}
"""The Lua files that, joined, take each call: libraries of local functions first."""
