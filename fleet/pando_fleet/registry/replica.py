"""A replica as the fleet sees it: what a worker reports in each heartbeat."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from pando_fleet.images.rule import ImageRule
from pando_fleet.registry.adapter import Adapter, AdapterPlace, Seconds

Count = Annotated[int, Meta(ge=0, le=2**53)]  # exact in Redis's numbers
Rate = Annotated[float, Meta(ge=0)]


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"  # its engine has been silent for some seconds
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One worker's report about itself; sent on each change and at least every 500 ms.

    Rates are the worker's recent measurements, 0.0 before the first one. Tokens are KV tokens;
    `pinned` are held by running requests, `cached` are evictable, the rest of the capacity is free.
    Values that the types refuse are neither sent nor read.
    """

    # Stable, such as the pod's name.
    replica: Annotated[str, Meta(min_length=1, pattern=r"\A[^\0]*\Z")]
    # New at every start of the process, so that an old tree never matches.
    incarnation: Annotated[str, Meta(min_length=1, pattern=r"\A[^\0:]*\Z")]
    url: Annotated[str, Meta(pattern=r"\A[^\0]*\Z")]  # at which routers reach it
    model: str  # the name under which it is served
    # What its admin endpoints want as API key. Empty: none, or they are not for the fleet.
    admin_token: str = field(default="", repr=False)
    state: ReplicaState
    stage: str = ""  # what a starting one does, such as "weights"; empty: unknown
    stage_done: Annotated[float, Meta(ge=0, le=1)] = 0.0  # its share; 0: unknown
    # Paths of its API that it serves, such as "/v1/completions". Empty: unknown, so all are tried;
    # its 404 is the answer.
    endpoints: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()  # names of LoRA adapters of `model` that it also serves
    # The same adapters with all that it knows of them; empty from a worker of the previous release.
    adapter_states: tuple[Adapter, ...] = ()
    adapter_slots: Count = 0  # adapters that fit into device memory at once; 0: unknown
    free_adapter_slots: Count = 0  # empty, or with an adapter that gives way: no request holds it
    adapters_loading: Count = 0  # into slots, one after the other
    adapters_waiting: Count = 0  # that waiting requests need while requests hold all slots
    # Since the adapter was used that gives way to the next load; 0: none has to.
    adapter_idle_s: Seconds = 0.0
    adapter_load_s: Seconds = 0.0  # of a load from host memory into a slot
    adapter_read_s: Seconds = 0.0  # of reading one from disk into host memory
    adapter_slot_wait_s: Seconds = 0.0  # until one more slot is free, while requests hold all
    capacity_tokens: Count = 0
    max_requests: Count = 0  # at once; routers queue more; 0: no limit
    max_request_tokens: Count = 0  # prompt and output of one request together
    pinned_tokens: Count = 0
    cached_tokens: Count = 0
    running: Count = 0  # requests
    waiting: Count = 0  # requests
    waiting_tokens: Count = 0  # uncached prompt tokens of the waiting requests
    waiting_output_tokens: Count = 0  # expected output of the waiting requests
    begun_tokens: Count = 0  # computed of prompts whose requests have no token yet
    begun_context: Count = 0  # context that those tokens see, summed
    prefill_tokens_per_s: Rate = 0.0
    prefill_context_per_s: Rate = 0.0  # context that those tokens see, summed
    doubling_context: Rate = 0.0  # behind which a prompt token takes twice as long; 0: unknown
    decode_tokens_per_s: Rate = 0.0
    release_tokens_per_s: Rate = 0.0  # KV tokens unpinned by ending requests
    bytes_per_token: Annotated[float, Meta(gt=0)] = 4.0  # prompt bytes per prompt token, smoothed
    image_rule: ImageRule | None = None  # None: it reads text only, or does not know its rule
    prompt_tokens_total: Count = 0
    cached_prompt_tokens_total: Count = 0
    output_tokens_total: Count = 0
    prompts_total: Count = 0  # those of the prompt tokens
    computed_squares_total: Rate = 0.0  # squares of their uncached tokens, summed
    decoded_tokens_total: Count = 0  # all output tokens but the first of each request
    decode_seconds_total: Rate = 0.0  # the steps of each of those, in the engine
    hot_evicted_tokens_total: Count = 0  # cached tokens that were evicted and soon needed again
    inter_token_seconds_total: Rate = 0.0  # between two tokens of a request, of all requests
    inter_tokens_total: Count = 0  # the number of those gaps
    source_hits_total: Count = 0  # requests whose source, such as a sound, was found encoded
    source_misses_total: Count = 0  # whose source was encoded

    def serves(self, path: str) -> bool:
        return not self.endpoints or path in self.endpoints

    def adapter(self, name: str) -> Adapter | None:
        """The adapter of this name; None if the replica does not serve it."""
        found = next((each for each in self.adapter_states if each.name == name), None)
        if found is None and name in self.adapters:
            return Adapter(name=name)
        return found

    def adapters_by_name(self) -> dict[str, str]:
        """The adapters' keys."""
        keys = {each.name: each.identity or each.key for each in self.adapter_states}
        for name in set(self.adapters).difference(keys):
            keys[name] = Adapter(name=name).key
        return keys

    def adapter_keys(self, place: AdapterPlace) -> list[str]:
        """The keys of the adapters there."""
        return [each.key for each in self.adapter_states if each.place is place]

    @property
    def free_tokens(self) -> int:
        return self.capacity_tokens - self.pinned_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Replica:
    """A heartbeat from Redis, with its age by Redis's clock."""

    beat: Heartbeat
    age_ms: int
    withheld: str = ""  # kind of the mark that excludes it from placement, "drain" or "warm"
