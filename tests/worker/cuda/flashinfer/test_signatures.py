"""The recorded signatures are those of the versions that may be installed, and wrong calls do not
fit them. That Pando's calls fit is checked wherever `ByTheBook` stands for flashinfer."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version

from tests.worker.cuda.flashinfer.by_the_book import ByTheBook, Decode
from tests.worker.cuda.flashinfer.signatures import SIGNATURES, bound

PYPROJECT = Path(__file__).parents[4] / "pyproject.toml"


def test_the_record_begins_with_the_first_version_that_may_be_installed() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    (wanted,) = (r for r in map(Requirement, extras["cuda"]) if r.name == "flashinfer-python")
    versions = sorted(map(Version, SIGNATURES))
    assert len(versions) > 1
    assert all(version in wanted.specifier for version in versions)
    (first,) = (Version(s.version) for s in wanted.specifier if s.operator == ">=")
    assert versions[0] == first


def test_the_double_has_everything_that_is_recorded_and_nothing_else() -> None:
    functions = {name for name in vars(ByTheBook) if not name.startswith("_")}
    recorded = {name.split(".")[-1] for name in SIGNATURES["0.7.0"] if "Wrapper" not in name}
    assert functions - {"Decode", "Prefill", "SinkPrefill", "Latents"} == recorded
    methods = {name.rpartition(".")[0] for name in SIGNATURES["0.7.0"] if "Wrapper" in name}
    assert len(methods) == 4


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1, 2), {"input": 3}),
        ((1, 2, 3, 4, 5, 6), {}),
        ((1, 2), {"epsilon": 3}),
    ],
)
def test_a_call_that_does_not_fit_fails(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def rmsnorm(input: Any = None, weight: Any = None, *others: Any, **more: Any) -> None: ...

    with pytest.raises(AssertionError, match=r"flashinfer\.rmsnorm of flashinfer 0\.7"):
        bound("flashinfer.rmsnorm")(rmsnorm)(*args, **kwargs)


def test_a_call_that_fits_with_another_meaning_fails() -> None:
    def rmsnorm(weight: Any, input: Any) -> None: ...

    with pytest.raises(AssertionError, match=r"input"):
        bound("flashinfer.rmsnorm")(rmsnorm)(torch.ones(1), torch.ones(1))


def test_methods_are_bound_as_well() -> None:
    with pytest.raises(AssertionError, match=r"BatchDecodeWithPagedKVCacheWrapper\.__init__"):
        Decode(torch.zeros(1, dtype=torch.uint8), "NHD", use_tensor_core=True)  # type: ignore[call-arg]
