"""A replica as the fleet sees it: what a worker says of itself in each heartbeat."""

from dataclasses import dataclass
from enum import StrEnum


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One worker's word about itself; sent on change and at least every 500 ms.

    Rates are what the worker measured lately, 0.0 until it measured anything. Tokens are KV tokens;
    `pinned` are held by running requests, `cached` are evictable, the rest of the capacity is free.
    """

    replica: str  # stable name, such as the pod's
    incarnation: str  # new with every start of the process: an old tree never matches
    url: str  # where routers reach it
    model: str  # the name it serves under
    state: ReplicaState
    # Paths of its API that it serves, such as "/v1/completions". Empty: it does not say, and is
    # asked for anything; its 404 is the answer.
    endpoints: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()  # names of LoRA adapters of `model` that it serves, too
    capacity_tokens: int = 0
    max_requests: int = 0  # that it takes at once, beyond which routers keep them; 0: any number
    max_request_tokens: int = 0  # prompt and output of one request together
    pinned_tokens: int = 0
    cached_tokens: int = 0
    running: int = 0  # requests
    waiting: int = 0  # requests
    waiting_tokens: int = 0  # uncached prompt tokens of the waiting requests
    waiting_output_tokens: int = 0  # that they are expected to produce
    prefill_tokens_per_s: float = 0.0
    prefill_context_per_s: float = 0.0  # what those tokens see, summed
    doubling_context: float = 0.0  # behind which a prompt token takes twice as long; 0: not known
    decode_tokens_per_s: float = 0.0
    release_tokens_per_s: float = 0.0  # KV tokens unpinned by ending requests
    bytes_per_token: float = 4.0  # prompt bytes per prompt token, smoothed
    prompt_tokens_total: int = 0
    cached_prompt_tokens_total: int = 0
    hot_evicted_tokens_total: int = 0  # cached tokens evicted, and soon asked for again
    inter_token_seconds_total: float = 0.0  # between two tokens of a request, of all requests
    inter_tokens_total: int = 0  # how many such gaps that were

    def serves(self, path: str) -> bool:
        return not self.endpoints or path in self.endpoints

    @property
    def free_tokens(self) -> int:
        return self.capacity_tokens - self.pinned_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Replica:
    """A heartbeat as Redis holds it, with its age by Redis's clock."""

    beat: Heartbeat
    age_ms: int
    withheld: str = ""  # the kind of the mark that keeps it from placement, "drain" or "warm"
