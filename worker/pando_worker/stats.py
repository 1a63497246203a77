"""`Stats`: what the scheduler process counts and measures, for heartbeats and metrics.

It is one of the process's messages; a new field gets its row in the server's `metrics.py`.
"""

import msgspec

BATCH_SIZES = tuple(2**power for power in range(10))


class Stats(msgspec.Struct, kw_only=True, tag=True):
    """The scheduler's state; sent after changes, at most every 50 ms, and at least every 500 ms.

    Counters (`*_total`) only grow. Rates are smoothed over the last seconds and are 0 until the
    first measurement. Heartbeats carry the fields of the same names.
    """

    running: int = 0
    waiting: int = 0
    # Uncached prompt tokens of the waiting queue, with the positions of sources to encode.
    waiting_tokens: int = 0
    waiting_output_tokens: int = 0  # expected output tokens of the waiting queue
    weight_bytes: int = 0  # the memory of one rank's weights
    capacity_tokens: int = 0
    # Held by running requests. If the window layers' pool is fuller than the main one, its share
    # scaled to the capacity.
    pinned_tokens: int = 0
    cached_tokens: int = 0  # held only by the radix cache: evictable
    # Computed, or being computed, of prompts whose requests have no token yet.
    begun_tokens: int = 0
    begun_context: int = 0  # the context lengths of those tokens, summed
    # While prefilling; the time includes the decodes of the same steps.
    prefill_tokens_per_s: float = 0.0
    prefill_context_per_s: float = 0.0  # the context lengths of those tokens, summed
    doubling_context: float = 0.0  # context at which a prompt token takes twice as long; 0: unknown
    decode_tokens_per_s: float = 0.0  # of all running requests
    release_tokens_per_s: float = 0.0  # KV tokens that ended requests unpin
    steps_total: int = 0
    rows_total: int = 0  # requests of all steps, summed
    # Steps by number of requests: up to each of BATCH_SIZES, and more. Their sum is steps_total.
    batch_sizes: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BATCH_SIZES) + 1))
    prompt_tokens_total: int = 0
    cached_prompt_tokens_total: int = 0
    prompts_total: int = 0  # those of the prompt tokens
    computed_squares_total: float = 0.0  # squares of their uncached tokens, summed
    decoded_tokens_total: int = 0  # all output tokens but the first of each request
    decode_seconds_total: float = 0.0  # the steps of each of those; many happen at once
    output_tokens_total: int = 0
    finished_requests_total: int = 0
    aborted_requests_total: int = 0
    retracted_requests_total: int = 0
    evicted_tokens_total: int = 0  # neither on the device nor on the host any more
    hot_evicted_tokens_total: int = 0  # of these, requested again soon; see `GhostList`
    # Of the window layers' own pool, if they have one.
    window_capacity_tokens: int = 0
    window_pinned_tokens: int = 0  # within the windows of running requests
    window_cached_tokens: int = 0  # kept for requests that continue a cached prefix
    host_capacity_tokens: int = 0
    host_tokens: int = 0  # on the host, including those that are also on the device
    host_stored_tokens_total: int = 0  # copied to the host
    host_loaded_tokens_total: int = 0  # copied back to the device
    # Of encoder-decoders.
    source_hits_total: int = 0  # admitted requests whose source was cached
    source_misses_total: int = 0  # whose source was encoded
    source_tokens_total: int = 0  # positions of the encoded ones
    # Of LoRA adapters.
    adapter_slots: int = 0  # adapters in device memory at once
    free_adapter_slots: int = 0  # empty, or with an adapter that no request holds
    adapter_idle_s: float = 0.0  # since the one was used that gives way next; 0.0: none has to
    adapters_loading: int = 0  # into slots
    adapters_waiting: int = 0  # which waiting requests need, and that have no slot yet
    adapter_load_s: float = 0.0  # of a load from host memory, smoothed; 0.0 before the first one
    adapter_read_s: float = 0.0  # what reading one from disk adds
    adapter_slot_wait_s: float = 0.0  # until one more is free, while requests hold all, smoothed
    adapter_loads_total: int = 0
