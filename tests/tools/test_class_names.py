"""A class name is used once in a part, so that a name in a trace or a search has one meaning."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("cli", "fleet", "operator", "router", "sim", "worker")
# `models/registry.py` requires this class of each module in `models/families/`, besides `build`.
INTERFACES = {"Config": "worker/pando_worker/models/families"}


@pytest.mark.parametrize("part", PARTS)
def test_a_class_name_stands_once_in_a_part(part: str) -> None:
    places = defaultdict(list)
    for file in sorted((ROOT / part).rglob("*.py")):
        path = file.relative_to(ROOT)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and INTERFACES.get(node.name) != str(path.parent):
                places[node.name].append(f"{path}:{node.lineno}")
    assert places
    assert {name: there for name, there in places.items() if len(there) > 1} == {}
