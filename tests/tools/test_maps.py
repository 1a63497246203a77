"""A package's map, at the start of its `__init__.py`, names exactly the modules that live there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("bench", "cli", "fleet", "operator", "router", "sim", "worker")
ENTRY = re.compile(r"^ {4}(\S+?(?:, \S+)*)(?:$| {2,})", re.M)


BEGINNINGS = {"fleet/pando_fleet"}  # their maps name where to begin, not everything


def maps() -> dict[str, tuple[Path, list[str]]]:
    """Each package's folder, and the names in its map."""
    found = {}
    for file in (init for part in PARTS for init in ROOT.glob(f"{part}/**/__init__.py")):
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")), clean=False) or ""
        named = [name for entry in ENTRY.findall(text) for name in entry.split(", ")]
        if named := [name for name in named if name.endswith((".py", "/"))]:
            found[str(file.parent.relative_to(ROOT))] = file.parent, named
    return found


@pytest.mark.parametrize(("folder", "named"), maps().values(), ids=maps().keys())
def test_a_map_is_complete(folder: Path, named: list[str]) -> None:
    modules = {file.name for file in folder.glob("*.py")} - {"__init__.py"}
    packages = {f"{init.parent.name}/" for init in folder.glob("*/__init__.py")}
    assert not set(named) - modules - packages, "named, but not there"
    if str(folder.relative_to(ROOT)) not in BEGINNINGS:
        assert not modules - set(named), "there, but not named"
    assert len(set(named)) == len(named)
