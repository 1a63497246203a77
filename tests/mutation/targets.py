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


_SCHEDULER = ("tests/worker/scheduler",)
_MEMORY = ("tests/worker/memory", "tests/worker/scheduler/test_scheduler_states.py")
_SCALING = ("tests/operator/scaling",)
_PLACEMENT = tuple(
    f"tests/fleet/test_{name}.py"
    for name in ("placement", "placement_terms", "placement_choice", "leases", "settling")
)
_LEASES = tuple(
    f"tests/fleet/test_{name}.py"
    for name in ("leases", "lease_undo", "loads", "settling", "placement")
)
_LUA = "fleet/pando_fleet/lua"

TARGETS = (
    Target("worker/pando_worker/memory/radix_cache.py", _MEMORY),
    Target("worker/pando_worker/memory/eviction.py", _MEMORY),
    Target("worker/pando_worker/scheduler/admission.py", _SCHEDULER),
    Target("worker/pando_worker/scheduler/planner.py", _SCHEDULER),
    Target("worker/pando_worker/scheduler/kv_manager.py", _SCHEDULER),
    Target("operator/pando_operator/scaling/decide.py", _SCALING),
    Target("operator/pando_operator/scaling/course.py", _SCALING),
    Target("operator/pando_operator/scaling/behavior.py", _SCALING),
    Target("operator/pando_operator/lifecycle/plan.py", ("tests/operator/lifecycle",)),
    Target("router/pando_router/core/fair_queue.py", ("tests/router/test_admission_order.py",)),
    Target("router/pando_router/core/line.py", ("tests/router/test_admission_queue.py",)),
    Target("router/pando_router/core/flight.py", ("tests/router/core/test_flight.py",)),
    Target(
        "router/pando_router/admission/pool_queue.py", ("tests/router/test_admission_queue.py",)
    ),
    Target(
        "router/pando_router/http/request_reader.py",
        ("tests/router/test_http_server.py", "tests/router/test_http_limits.py"),
    ),
    Target("fleet/pando_fleet/prefix.py", ("tests/fleet/test_prefix.py",)),
    Target("fleet/pando_fleet/placement.py", (*_PLACEMENT, "tests/fleet/test_tenant_share.py")),
    Target(
        "fleet/pando_fleet/settling.py",
        ("tests/fleet/test_settling.py", "tests/fleet/test_tenant_share.py"),
    ),
    Target(f"{_LUA}/place.lua", _PLACEMENT),
    Target(f"{_LUA}/fleet_ops.lua", _PLACEMENT),
    Target(f"{_LUA}/lease_ops.lua", _LEASES),
    Target(f"{_LUA}/settle.lua", _LEASES),
    Target(
        f"{_LUA}/tree_ops.lua",
        ("tests/fleet/test_prefix_tree.py", "tests/fleet/test_tenant_share.py"),
    ),
    Target(f"{_LUA}/tree_worth.lua", ("tests/fleet/test_worth.py",)),
    Target(f"{_LUA}/beat.lua", ("tests/fleet/test_registry.py", "tests/fleet/test_marks.py")),
    Target(f"{_LUA}/mark_ops.lua", ("tests/fleet/test_marks.py",)),
    Target(f"{_LUA}/limit_take.lua", ("tests/fleet/test_rate_limits.py",)),
    Target(f"{_LUA}/upstream_agree.lua", ("tests/fleet/test_upstreams.py",)),
)
