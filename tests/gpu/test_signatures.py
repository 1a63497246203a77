"""The installed flashinfer takes what the recorded versions take, in the same order."""

from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import pytest

from pando_worker.runner.cuda import prebuild
from tests.worker.cuda.flashinfer.signatures import SIGNATURES

FIRST = next(iter(SIGNATURES.values()))


def found(name: str) -> Any:
    module, _, rest = name.rpartition(".")
    try:
        return getattr(import_module(module), rest)
    except ModuleNotFoundError:  # a method: the module has a class
        owner = found(module)
        # A method that passes its keywords on: see `tools/record_flashinfer.py`.
        is_passed_on = rest == "plan" and hasattr(owner, "_plan_impl")
        return getattr(owner, "_plan_impl" if is_passed_on else rest)


def test_each_call_that_an_image_compiles_for_asks_for_a_kernel() -> None:
    # Of six that all models call, and of each shape at least FlashAttention 2.
    assert len(prebuild.needed_kernels(prebuild.SHAPES)) > len(prebuild.SHAPES) + 4


@pytest.mark.parametrize("name", FIRST)
def test_calls_that_fit_the_record_fit_the_installed_version(name: str) -> None:
    recorded, installed = FIRST[name].parameters, signature(found(name)).parameters
    assert set(recorded) <= set(installed)
    in_order = [
        [p.name for p in of.values() if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        for of in (recorded, installed)
    ]
    assert in_order[1][: len(in_order[0])] == in_order[0]
    assert all(
        p.default is not Parameter.empty for p in list(installed.values()) if p.name not in recorded
    )
