"""What a scaling decision looks at: one pool at one moment, and what is remembered of before.

All times are seconds since 1970 of the caller's clock, which a simulation moves as it likes. Tokens
are KV tokens. Whoever calls `decide` fills a `Snapshot`, and passes `Decision.history` on in the
next one.
"""

from dataclasses import dataclass

from pando_operator.scaling.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """One ready replica that takes requests, as its last heartbeat says."""

    name: str
    incarnation: str  # counters start again with another one
    age_s: float  # of the heartbeat
    capacity_tokens: int
    pinned_tokens: int  # held by running requests
    cached_tokens: int  # evictable
    running: int  # requests
    waiting: int  # requests
    waiting_prompt_tokens: int  # their uncached part
    waiting_output_tokens: int  # that they are expected to produce
    prefill_tokens_per_s: float  # rates are 0.0 until measured
    release_tokens_per_s: float  # unpinned by ending requests
    prompt_tokens_total: int
    hot_evicted_tokens_total: int  # evicted, and asked for again soon

    @property
    def waiting_tokens(self) -> int:
        return self.waiting_prompt_tokens + self.waiting_output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterQueue:
    """Requests that wait in the routers, of all routers together."""

    requests: int = 0
    waited_s: float = 0.0  # by the one that waits longest
    tokens: int = 0  # estimated, of their prompts and expected outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What Redis tells. `loads` has only replicas that are ready and that no mark withholds."""

    loads: tuple[ReplicaLoad, ...] = ()
    queue: RouterQueue = RouterQueue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    current: int  # replicas that are to stay: ready, starting or failing; not those that leave
    ready: int  # of these, the ones that take requests by Kubernetes' word
    draining: int = 0  # besides `current`
    signals: Signals | None  # None: Redis is away
    start_s: float | None  # from decision to ready, learned; None until known
    history: History

    @property
    def coming(self) -> int:
        """Replicas that were asked for and take no requests yet."""
        return max(0, self.current - self.ready)
