"""What all runs of a report have in common: enough to repeat them."""

import msgspec


class About(msgspec.Struct, frozen=True, kw_only=True):
    command: str  # repeats all runs
    pando_version: str
    trace: str  # its file's name
    trace_summary: str  # such as "conversation, 12,031 requests in 59 min"
    unplayed: dict[str, int] = {}  # lines of the trace that could not be played, by reason
    pool: str  # the manifest's file, or its replacement
    pool_summary: str  # such as "llama: 8 replicas of 2 GPUs"
    cost_model: str  # name and source
    seed: int
    slow_ttft_s: float  # a first token later than this is late
    slow_gap_s: float  # a mean time between tokens above this is slow
    gpus_per_replica: int
