"""The KV pool, the radix cache in it, and its host tier."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from pando_fleet.choices import described, one_of
from pando_worker.policies.eviction import EVICTION_POLICIES


class KVCacheDType(StrEnum):
    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FP8_E4M3 = "fp8_e4m3"


class MemorySettings(BaseSettings):
    memory_gib: Annotated[
        float | None,
        Field(
            gt=0,
            description="memory for weights and KV pool of all ranks together, in GiB; by default 2"
            " on CPU, and the free memory of the GPUs on CUDA, which must have this much",
        ),
    ] = None
    mem_fraction_static: Annotated[
        float,
        Field(
            gt=0,
            lt=1,
            description="the KV pool's share of the memory that the weights leave, and on CUDA also"
            " the largest steps, which are measured at the start",
        ),
    ] = 0.8
    max_total_tokens: Annotated[
        int | None, Field(ge=1, description="cap on the KV pool, in tokens")
    ] = None
    kv_cache_dtype: Annotated[
        KVCacheDType,
        Field(description="type of cached keys and values; auto: the type of the weights"),
    ] = KVCacheDType.AUTO
    page_size: Annotated[int, Field(ge=1, le=256, description="tokens per KV page")] = 16
    window_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="tokens that layers with a sliding window hold, as a share of the KV pool's"
            " and of the host's (more if one request needs more); 1 keeps all layers in one pool",
        ),
    ] = 0.5
    radix_cache: Annotated[bool, Field(description="cache prefixes and reuse them")] = True
    eviction_policy: Annotated[
        str,
        one_of(EVICTION_POLICIES),
        Field(description=described("which cached prefix is evicted first", EVICTION_POLICIES)),
    ] = "lru"
    host_memory_gib: Annotated[
        float,
        Field(ge=0, description="host memory for cached prefixes that the KV pool evicts, in GiB"),
    ] = 0.0
    host_write: Annotated[
        Literal["write-back", "write-through-selective"],
        Field(
            description="when a prefix is copied to host memory: when it is evicted, or after its"
            " second hit"
        ),
    ] = "write-back"

    @model_validator(mode="after")
    def _host_memory_holds_prefixes(self) -> Self:
        if self.host_memory_gib and not self.radix_cache:
            raise ValueError("host_memory_gib needs radix_cache, which is off")
        return self
