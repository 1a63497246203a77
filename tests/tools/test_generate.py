"""Generated files are up to date; otherwise `make lint` names the stale file."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.generate.__main__ import GENERATORS, Files, stale

ROOT = Path(__file__).parents[2]
CRD = "helm/pando/files/workerpool-crd.yaml"
PARTS = ("fleet", "router", "worker", "operator", "sim", "cli")


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda one: one.__module__)
def test_every_generated_file_holds_what_its_generator_writes(
    generator: Callable[[], Files],
) -> None:
    assert not [path for path, _ in stale(generator())], "run `make generate`"


def test_one_run_mends_a_stale_file_and_those_made_from_it(tmp_path: Path) -> None:
    for name in (*PARTS, "tools", "docs", "helm"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.png")
        )
    schema = tmp_path / "operator/pando_operator/resource/engine_schema.json"
    schema.write_text(schema.read_text().replace("cache", "cash"))
    page = tmp_path / "docs/metrics.md"
    page.unlink()

    found = generate(tmp_path, "--check")
    assert found.returncode == 1
    assert f"{schema} is stale: run `make generate`" in found.stdout
    assert f"{page} is stale" in found.stdout
    assert "configuration.md" not in found.stdout
    assert not page.exists(), "a check writes nothing"

    assert generate(tmp_path).returncode == 0
    for made in (schema.relative_to(tmp_path), "docs/metrics.md", CRD):
        assert (tmp_path / made).read_text() == (ROOT / made).read_text()


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(root / part) for part in PARTS)
    return subprocess.run(
        [sys.executable, "-m", "tools.generate", *arguments],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
