"""Images install the same dependencies as pip would for Pando's extras."""

import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pando_fleet.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[2]
EXTRAS = ("router,otel", "operator", "worker,otel", "cuda,otel")


def wanted(extra: str) -> set[Requirement]:
    """An extra's requirements from the metadata that pip reads, including extras that it names."""
    found = set()
    for requirement in map(Requirement, requires(DISTRIBUTION) or ()):
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        requirement.marker = None
        if requirement.name == DISTRIBUTION:
            found |= {one for name in requirement.extras for one in wanted(name)}
        else:
            found.add(requirement)
    return found


@pytest.mark.parametrize("extras", EXTRAS)
def test_an_image_installs_what_its_extras_need(extras: str) -> None:
    script = ROOT / "docker" / "requirements.py"
    printed = subprocess.run(
        [sys.executable, script, extras], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = {Requirement(line) for line in printed.stdout.splitlines()}
    assert lines == {one for extra in extras.split(",") for one in wanted(extra)}


def test_routers_and_operators_have_no_torch() -> None:
    for extras in EXTRAS[:2]:
        names = {one.name for extra in extras.split(",") for one in wanted(extra)}
        assert not {"torch", "transformers", "numpy"} & names


def test_the_dockerfile_names_no_package_index() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "://" not in text
    for extras in EXTRAS:
        assert f"requirements.py {extras} >" in text
