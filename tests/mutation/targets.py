"""The files that are mutated, and the tests of their behaviour."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutation import lua_mutants, python_mutants
from tests.mutation.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Target:
    file: str  # from the root of the tree
    tests: tuple[str, ...]  # pytest's arguments

    def mutants(self, source: bytes) -> Iterator[Mutant]:
        is_lua = self.file.endswith(".lua")
        mutants_of = lua_mutants.mutants_of if is_lua else python_mutants.mutants_of
        return mutants_of(self.file, source)


_SCHEDULER = tuple(
    f"tests/worker/scheduler/test_{name}.py"
    for name in ("scheduler", "pressure", "batching", "policy", "windows", "scheduler_states")
)
_KV = (
    *_SCHEDULER,
    *(f"tests/worker/scheduler/test_{name}.py" for name in ("endings", "host_windows", "stride")),
)
_MEMORY = ("tests/worker/memory", "tests/worker/scheduler/test_scheduler_states.py")
_SCALING = tuple(
    f"tests/operator/scaling/test_{name}.py"
    for name in ("decisions", "behavior", "panic", "memory", "schedule", "properties")
)


def _placing(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/fleet/placement/test_{name}.py" for name in names)


def _registry(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/fleet/registry/test_{name}.py" for name in names)


def _records(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/fleet/records/test_{name}.py" for name in names)


def _redis(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/fleet/redis/test_{name}.py" for name in names)


_PLACEMENT = _placing("placement", "placement_terms", "placement_costs", "placement_choice")
_KEEPING = _placing("keeping", "router_deaths")
_LEASES = (*_placing("leases", "lease_undo"), *_KEEPING, *_records("loads"))
_FULL = (
    "tests/fleet/redis/test_memory.py"
    "::test_between_two_heartbeats_a_full_redis_takes_placements_and_keeps_its_bound"
)
_LUA = "fleet/pando_fleet/lua"

TARGETS = (
    Target(
        "worker/pando_worker/memory/radix_cache.py",
        (*_MEMORY, "tests/worker/scheduler/test_batching.py"),
    ),
    Target("worker/pando_worker/memory/evictable_tree.py", _MEMORY),
    Target("worker/pando_worker/policies/eviction/lru.py", _MEMORY),
    Target("worker/pando_worker/policies/eviction/lfu.py", _MEMORY),
    Target("worker/pando_worker/policies/eviction/fifo.py", _MEMORY),
    Target("worker/pando_worker/scheduler/planning/admission.py", _SCHEDULER),
    Target("worker/pando_worker/scheduler/planning/planner.py", _SCHEDULER),
    Target("worker/pando_worker/scheduler/pages/kv_manager.py", _KV),
    Target("operator/pando_operator/scaling/decide.py", _SCALING),
    Target("operator/pando_operator/scaling/limits/limiter.py", _SCALING),
    Target("operator/pando_operator/scaling/limits/behavior.py", _SCALING),
    Target("operator/pando_operator/lifecycle/plan.py", ("tests/operator/lifecycle",)),
    Target(
        "router/pando_router/core/fair_queue.py",
        ("tests/router/admission/test_admission_order.py",),
    ),
    Target(
        "router/pando_router/core/bounded_queue.py",
        ("tests/router/admission/test_admission_queue.py",),
    ),
    Target("router/pando_router/core/flight.py", ("tests/router/core/test_flight.py",)),
    Target("router/pando_router/core/promises.py", ("tests/router/core/test_promises.py",)),
    Target(
        "router/pando_router/admission/pool_queue.py",
        ("tests/router/admission/test_admission_queue.py",),
    ),
    Target(
        "fleet/pando_fleet/http/server/request_reader.py",
        ("tests/router/http/test_http_server.py", "tests/router/http/test_http_limits.py"),
    ),
    Target("fleet/pando_fleet/placement/prefix.py", _placing("prefix")),
    Target(
        "fleet/pando_fleet/placement/placer.py",
        (*_PLACEMENT, *_placing("settling", "leases"), *_KEEPING, *_records("tenant_share")),
    ),
    Target("fleet/pando_fleet/placement/keeper.py", _KEEPING),
    Target(
        "fleet/pando_fleet/placement/settling.py",
        (*_placing("settling", "leases"), *_records("tenant_share")),
    ),
    Target(f"{_LUA}/placement/place.lua", _PLACEMENT),
    Target(f"{_LUA}/placement/fleet_ops.lua", _PLACEMENT),
    Target(f"{_LUA}/placement/lease_ops.lua", (*_LEASES, *_placing("placement_choice"))),
    Target(
        f"{_LUA}/placement/settle.lua", (*_placing("settling"), *_records("tenant_share"), *_LEASES)
    ),
    Target(f"{_LUA}/placement/tree_ops.lua", (*_placing("prefix_tree"), *_records("tenant_share"))),
    Target(f"{_LUA}/placement/tree_worth.lua", _placing("worth")),
    Target(
        f"{_LUA}/registry/beat.lua", (*_registry("registry"), *_records("marks"), *_redis("memory"))
    ),
    Target(f"{_LUA}/registry/replica_ops.lua", (*_registry("registry"), *_redis("memory"))),
    Target(f"{_LUA}/redis/memory_ops.lua", (*_redis("memory"), *_placing("placement_costs"))),
    Target(f"{_LUA}/placement/router_beat.lua", _KEEPING),
    Target(f"{_LUA}/placement/router_reap.lua", _KEEPING),
    Target(f"{_LUA}/registry/pool_forget.lua", (*_KEEPING, *_registry("registry"))),
    Target(f"{_LUA}/registry/pools_forget.lua", _registry("registry")),
    Target(f"{_LUA}/records/mark_ops.lua", (*_records("marks"), *_redis("misfits"), _FULL)),
    Target(f"{_LUA}/records/mark_set.lua", _records("marks")),
    Target(f"{_LUA}/records/mark_report.lua", _records("marks")),
    Target(f"{_LUA}/records/queue_report.lua", _records("queues")),
    Target(f"{_LUA}/records/remember_home.lua", _records("homes")),
    Target(f"{_LUA}/records/limit_ops.lua", (*_records("rate_limits"), _FULL)),
    Target(f"{_LUA}/records/limit_take.lua", _records("rate_limits")),
    Target(
        f"{_LUA}/registry/upstream_agree.lua", (*_registry("upstreams"), *_redis("misfits"), _FULL)
    ),
)
