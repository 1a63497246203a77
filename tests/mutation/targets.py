"""The files whose mutants are tried, and the tests that hold their behaviour."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutation import lua_mutants, python_mutants
from tests.mutation.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Target:
    file: str  # from the root of the tree
    tests: tuple[str, ...]  # what pytest is given

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


def _fleet(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/fleet/test_{name}.py" for name in names)


_PLACEMENT = _fleet("placement", "placement_terms", "placement_costs", "placement_choice")
_LEASES = _fleet("leases", "lease_undo", "loads", "keeping")
_FULL = (
    "tests/fleet/redis/test_memory.py"
    "::test_between_two_heartbeats_a_full_redis_takes_placements_and_keeps_its_bound"
)
_LUA = "fleet/pando_fleet/lua"

TARGETS = (
    Target("worker/pando_worker/memory/radix_cache.py", _MEMORY),
    Target("worker/pando_worker/memory/eviction.py", _MEMORY),
    Target("worker/pando_worker/scheduler/planning/admission.py", _SCHEDULER),
    Target("worker/pando_worker/scheduler/planning/planner.py", _SCHEDULER),
    Target("worker/pando_worker/scheduler/pages/kv_manager.py", _KV),
    Target("operator/pando_operator/scaling/decide.py", _SCALING),
    Target("operator/pando_operator/scaling/limits/course.py", _SCALING),
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
    Target(
        "router/pando_router/admission/pool_queue.py",
        ("tests/router/admission/test_admission_queue.py",),
    ),
    Target(
        "router/pando_router/http/request_reader.py",
        ("tests/router/http/test_http_server.py", "tests/router/http/test_http_limits.py"),
    ),
    Target("fleet/pando_fleet/placement/prefix.py", _fleet("prefix")),
    Target(
        "fleet/pando_fleet/placement/placer.py",
        (*_PLACEMENT, *_fleet("settling", "tenant_share", "leases", "keeping")),
    ),
    Target("fleet/pando_fleet/placement/settling.py", _fleet("settling", "leases", "tenant_share")),
    Target(f"{_LUA}/place.lua", _PLACEMENT),
    Target(f"{_LUA}/fleet_ops.lua", _PLACEMENT),
    Target(f"{_LUA}/lease_ops.lua", (*_LEASES, *_fleet("placement_choice"))),
    Target(f"{_LUA}/settle.lua", (*_fleet("settling", "tenant_share"), *_LEASES)),
    Target(f"{_LUA}/tree_ops.lua", _fleet("prefix_tree", "tenant_share")),
    Target(f"{_LUA}/tree_worth.lua", _fleet("worth")),
    Target(f"{_LUA}/beat.lua", _fleet("registry", "marks", "memory")),
    Target(f"{_LUA}/replica_ops.lua", _fleet("registry", "memory")),
    Target(f"{_LUA}/memory_ops.lua", _fleet("memory", "placement_costs")),
    Target(f"{_LUA}/router_beat.lua", _fleet("keeping")),
    Target(f"{_LUA}/router_reap.lua", _fleet("keeping")),
    Target(f"{_LUA}/mark_ops.lua", (*_fleet("marks", "misfits"), _FULL)),
    Target(f"{_LUA}/mark_set.lua", _fleet("marks")),
    Target(f"{_LUA}/mark_report.lua", _fleet("marks")),
    Target(f"{_LUA}/queue_tell.lua", _fleet("queues")),
    Target(f"{_LUA}/remember_home.lua", _fleet("homes")),
    Target(f"{_LUA}/limit_ops.lua", (*_fleet("rate_limits"), _FULL)),
    Target(f"{_LUA}/limit_take.lua", _fleet("rate_limits")),
    Target(f"{_LUA}/upstream_agree.lua", (*_fleet("upstreams", "misfits"), _FULL)),
)
