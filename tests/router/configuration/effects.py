"""The effect of changing each setting that needs no restart."""

from dataclasses import dataclass, field
from typing import Any

from tests.router.configuration.looks import (
    LONG,
    Look,
    answered,
    checked_path,
    connecting,
    crowded,
    first_line_is_left_out,
    health,
    idle_connection_ends_fast,
    is_logged,
    is_recorded,
    is_shadowed,
    leases_are_short,
    many_values,
    much_is_expected_of_who_waits,
    new_connection,
    page_is_there,
    placement_is_given_up_fast,
    probing_is_fast,
    recovery,
    refusal,
    sent,
    sessions_are_noted,
    spreads,
    stuck_reader_is_cut_fast,
    told,
    tries,
)
from tests.router.configuration.running_world import ENGINE, FOLDER
from tests.router.world import never, status

SLOW_S, FAST_S = 3.0, 0.1
"""Limits before and after; `looks.BETWEEN_S` is between them."""


@dataclass(frozen=True)
class Effect:
    before: Any
    after: Any
    look: Look
    sees: tuple[Any, Any]  # before, after
    given: dict[str, Any] = field(default_factory=dict)  # other settings


IMPATIENT = {"queue_timeout": 0.2, "max_replica_requests": 1}
CHECKED = {"health_interval": 0.02}
SOLE_TRY = {"max_tries": 1}
PROBED = {"upstream": [ENGINE]}

EFFECTS = {
    "policy": Effect("prefix_hash", "round_robin", spreads(), (False, True)),
    "pool_policies": Effect({}, {"default": "round_robin"}, spreads(), (False, True)),
    "aliases": Effect({}, {"smart": "m"}, answered(model="smart"), (404, 200)),
    "allow_policy_header": Effect(
        False, True, answered(**{"x-pando-policy": "random"}), (403, 200)
    ),
    "session_header": Effect("x-a", "x-b", spreads("x-b"), (False, True), {"policy": "session"}),
    "bound_sessions": Effect(False, True, sessions_are_noted, (False, True)),
    "drop_volatile_lines": Effect(False, True, first_line_is_left_out, (False, True)),
    "shadow_policy": Effect(None, "random", is_shadowed, (False, True), {"shadow_per_second": 999}),
    "shadow_per_second": Effect(
        0.001, 1000, is_shadowed, (False, True), {"shadow_policy": "random"}
    ),
    "expected_pools": Effect(
        {}, {"asleep": "late"}, answered(model="late"), (404, 503), {"queue_timeout": 0.2}
    ),
    "upstream": Effect([], [ENGINE], answered(model="foreign"), (404, 200)),
    "upstream_interval": Effect(SLOW_S, FAST_S, probing_is_fast, (False, True), PROBED),
    "upstream_api_key": Effect(None, "secret", sent("authorization"), (None, "Bearer secret")),
    "chat_page": Effect(False, True, page_is_there, (404, 200)),
    "max_body_bytes": Effect(100_000, 1000, answered(LONG), (200, 413)),
    "max_body_values": Effect(200_000, 1024, many_values, (200, 413)),
    "max_bodies_bytes": Effect(
        100_000, 1000, crowded(1, size=800), (200, "overloaded"), {"max_body_bytes": 1000}
    ),
    "max_requests": Effect(100, 1, crowded(1), (200, "overloaded")),
    "max_tries": Effect(1, 2, tries("failing"), (1, 2)),
    "retry_share": Effect(0.0, 1.0, tries("failing"), (1, 2)),
    "connect_timeout": Effect(0.3, 0.2, connecting, ("0.3 s", "0.2 s"), SOLE_TRY),
    "first_byte_timeout": Effect(
        0.3, 0.2, told("silent", r"sent nothing for ([\d.]+) s"), ("0.3", "0.2")
    ),
    "idle_timeout": Effect(
        0.3, 0.2, told("stalling", r"sent nothing for ([\d.]+) s"), ("0.3", "0.2")
    ),
    "request_timeout": Effect(
        0.3, 0.2, told("silent", r"did not finish within ([\d.]+) s"), ("0.3", "0.2")
    ),
    "max_replica_connections": Effect(
        1, 100, crowded(), ("queue_timeout", 200), {"queue_timeout": 0.2}
    ),
    "header_timeout": Effect(0.3, 0.2, refusal(b"GET / HTTP/1.1\r\nho"), ("0.3 s", "0.2 s")),
    "body_timeout": Effect(
        0.3,
        0.2,
        refusal(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"),
        ("0.3 s", "0.2 s"),
        {"min_body_rate": 0},
    ),
    "min_body_rate": Effect(
        0,
        10_000,
        refusal(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"),
        ("0.4 s", "10000 bytes"),
        {"body_timeout": 0.4},
    ),
    "keep_alive_timeout": Effect(3600, FAST_S, idle_connection_ends_fast, (False, True)),
    "write_timeout": Effect(SLOW_S, FAST_S, stuck_reader_is_cut_fast, (False, True)),
    "max_connections": Effect(100, 1, new_connection, (200, 503)),
    "max_header_bytes": Effect(
        10_000,
        1024,
        refusal(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 3000 + b"\r\n\r\n"),
        ("200", "431"),
    ),
    "max_replica_requests": Effect(
        100, 1, crowded(), (200, "queue_timeout"), {"queue_timeout": 0.2}
    ),
    "queue_requests": Effect(9, 0, crowded(), ("queue_timeout", "queue_full"), IMPATIENT),
    "queue_bytes": Effect(9_999, 0, crowded(), ("queue_timeout", "queue_full"), IMPATIENT),
    "queue_timeout": Effect(
        0.3,
        0.2,
        told("hello", r"within ([\d.]+) s", model="late"),
        ("0.3", "0.2"),
        {"expected_pools": {"asleep": "late"}},
    ),
    "allow_priority_header": Effect(
        False, True, crowded(headers={"x-priority": "high"}), ("queue_timeout", 400), IMPATIENT
    ),
    "health_interval": Effect(0, 0.02, health(status(500)), (True, False), {"unhealthy_after": 1}),
    "health_timeout": Effect(
        60, 0.1, health(never), (True, False), CHECKED | {"unhealthy_after": 1}
    ),
    "health_path": Effect("/healthz", "/other", checked_path, (False, True), CHECKED),
    "unhealthy_after": Effect(10_000, 1, health(status(500)), (True, False), CHECKED),
    "healthy_after": Effect(10_000, 1, recovery, (False, True), CHECKED | {"unhealthy_after": 1}),
    "placement_timeout": Effect(SLOW_S, FAST_S, placement_is_given_up_fast, (False, True)),
    "lease_seconds": Effect(3000, 5, leases_are_short, (False, True)),
    "expected_output_tokens": Effect(
        10, 9_000, much_is_expected_of_who_waits, (False, True), {"max_replica_requests": 1}
    ),
    "migrate": Effect(
        "off", "always", sent("x-pando-token-ids", stream=True, temperature=1), (None, "1")
    ),
    "max_migrations": Effect(1, 2, tries("breaking", stream=True, temperature=0), (2, 3)),
    "migrate_stream_bytes": Effect(
        10, 10_000, tries("breaking", stream=True, temperature=0), (1, 3)
    ),
    "record_on": Effect(
        False, True, is_recorded, (False, True), {"record": f"{FOLDER}/requests.jsonl"}
    ),
    "access_log_sample": Effect(0.0, 1.0, is_logged, (False, True)),
    "access_log_slow_seconds": Effect(
        3600, 1e-6, is_logged, (False, True), {"access_log_sample": 0.0}
    ),
}
"""By setting."""
