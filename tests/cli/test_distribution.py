"""Pando's own name for pip is no stranger's, and nothing names the stranger's."""

import re
import subprocess
import tomllib
from pathlib import Path

from pando_fleet.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[2]
STRANGERS = re.compile(r"pip install[^\n`]*?[ '\"]pando(\[|['\" \n])")


def test_the_distribution_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION != "pando"


def test_no_page_and_no_message_installs_a_strangers_package() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    files = [ROOT / name for name in listed.splitlines() if name.endswith((".md", ".py", ".yaml"))]
    assert len(files) > 1000
    found = [f for f in files if f.is_file() and STRANGERS.search(f.read_text(errors="replace"))]
    assert found in ([], [Path(__file__)])
