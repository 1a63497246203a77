"""What a scheduler says of itself, as a heartbeat tells it."""

from dataclasses import replace

from pando_fleet import Heartbeat
from pando_worker.messages import Ready, Stats


def with_ready(beat: Heartbeat, ready: Ready) -> Heartbeat:
    return replace(
        beat,
        capacity_tokens=ready.capacity_tokens,
        max_request_tokens=ready.max_request_tokens,
    )


def with_stats(beat: Heartbeat, stats: Stats) -> Heartbeat:
    return replace(
        beat,
        pinned_tokens=stats.pinned_tokens,
        cached_tokens=stats.cached_tokens,
        running=stats.running,
        waiting=stats.waiting,
        waiting_tokens=stats.waiting_tokens,
        waiting_output_tokens=stats.waiting_output_tokens,
        prefill_tokens_per_s=stats.prefill_tokens_per_s,
        prefill_context_per_s=stats.prefill_context_per_s,
        doubling_context=stats.doubling_context,
        decode_tokens_per_s=stats.decode_tokens_per_s,
        release_tokens_per_s=stats.release_tokens_per_s,
        prompt_tokens_total=stats.prompt_tokens_total,
        cached_prompt_tokens_total=stats.cached_prompt_tokens_total,
        hot_evicted_tokens_total=stats.hot_evicted_tokens_total,
    )
