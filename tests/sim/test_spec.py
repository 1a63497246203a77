"""A default is defined once: the simulator takes it from the setting of the worker or router."""

import ast
from pathlib import Path

import pytest

from pando_sim.spec import ROUTER, WORKER, FleetSpec, RouterSpec, WorkerSpec

SIM = Path(__file__).parents[2] / "sim/pando_sim"
SPEC = FleetSpec(worker=WorkerSpec(cost_model="linear", capacity_tokens=1))
# Fields of the simulator that mean what a setting of a part means.
SAME = {
    "page_size": (SPEC.worker.page_size, WORKER.page_size),
    "chunked_prefill_size": (SPEC.worker.chunked_prefill_size, WORKER.chunked_prefill_size),
    "max_running_requests": (SPEC.worker.max_running_requests, WORKER.max_running_requests),
    "max_outstanding": (SPEC.router.max_outstanding, ROUTER.max_replica_requests),
    "queue_requests": (SPEC.router.queue_requests, ROUTER.queue_requests),
    "queue_deadline_s": (SPEC.router.queue_deadline_s, ROUTER.queue_timeout),
    "max_tries": (SPEC.router.max_tries, ROUTER.max_tries),
    "retry_share": (SPEC.router.retry_share, ROUTER.retry_share),
    "lease_s": (SPEC.router.lease_s, ROUTER.lease_seconds),
    "expected_output_tokens": (
        SPEC.router.expected_output_tokens,
        ROUTER.expected_output_tokens,
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_simulator_has_the_default_of_the_part_that_it_simulates(name: str) -> None:
    simulated, real = SAME[name]
    assert simulated == real


def test_no_field_of_a_spec_repeats_a_number_of_a_setting_of_the_same_name() -> None:
    """A field that is also a setting of a part or of the simulator refers to that default."""
    settings = {*type(ROUTER).model_fields, *type(WORKER).model_fields}
    repeated = [
        f"{file}: {field}"
        for file, owned in (("spec.py", settings), ("settings.py", settings | spec_fields()))
        for field in numbers(SIM / file)
        if field in owned and field not in ("host", "port")
    ]
    assert repeated == []


def spec_fields() -> set[str]:
    return {name for spec in (FleetSpec, WorkerSpec, RouterSpec) for name in spec.__slots__}


def numbers(file: Path) -> list[str]:
    """The fields of a module's classes with a literal number or text as default."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [
        field.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(field.value, ast.Constant)
        and field.value.value is not None
    ]
