"""A replica's row for people: its heartbeat, and its state in this router."""

from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from pando_router.core.flight import Flights
from pando_router.fleet_view.snapshot import Member


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """`row(member)` for /fleet and the dashboard."""

    flights: Flights

    def __call__(self, member: Member) -> dict[str, Any]:
        beat = member.beat
        prompt_tokens = beat.prompt_tokens_total
        sources = beat.source_hits_total + beat.source_misses_total
        return {
            "replica": beat.replica,
            "incarnation": beat.incarnation,
            "url": beat.url,
            "model": beat.model,
            "adapters": beat.adapters,
            "adapter_states": to_builtins(beat.adapter_states),
            "adapter_slots": beat.adapter_slots or None,
            "free_adapter_slots": beat.free_adapter_slots if beat.adapter_slots else None,
            "adapter_idle_s": beat.adapter_idle_s,
            "adapters_loading": beat.adapters_loading,
            "adapters_waiting": beat.adapters_waiting,
            "adapter_load_s": beat.adapter_load_s,
            "adapter_read_s": beat.adapter_read_s,
            "adapter_slot_wait_s": beat.adapter_slot_wait_s,
            "endpoints": beat.endpoints,
            "image_rule": to_builtins(beat.image_rule),
            "state": member.state.value,
            "stage": beat.stage,
            "stage_done": beat.stage_done,
            "age_ms": member.age_ms,
            "running": beat.running,
            "waiting": beat.waiting,
            "capacity_tokens": beat.capacity_tokens,
            "pinned_tokens": beat.pinned_tokens,
            "cached_tokens": beat.cached_tokens,
            "free_tokens": beat.free_tokens,
            "prefill_tokens_per_s": beat.prefill_tokens_per_s,
            "decode_tokens_per_s": beat.decode_tokens_per_s,
            "hit_rate": beat.cached_prompt_tokens_total / prompt_tokens if prompt_tokens else None,
            "encoded_sources": beat.source_misses_total if sources else None,
            "source_hit_rate": beat.source_hits_total / sources if sources else None,
            "in_flight": self.flights.in_flight[beat.incarnation],  # of this router
            "breaker": self.flights.breaker.state(beat.incarnation).value,
            "healthy": beat.incarnation not in self.flights.unhealthy,  # by this router's checks
        }
