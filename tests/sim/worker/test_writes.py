"""A worker's state changes only through its scheduler's operations."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pando_sim
import pando_worker

SIM, WORKER = (Path(package.__path__[0]) for package in (pando_sim, pando_worker))


def assigned(tree: ast.AST) -> Iterator[tuple[ast.Attribute, bool]]:
    """Each written attribute, or attribute with a written item, and whether it belongs to
    `self`."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Attribute, ast.Subscript)) or isinstance(node.ctx, ast.Load):
            continue
        target: ast.expr = node
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute):
            yield target, isinstance(target.value, ast.Name) and target.value.id == "self"


def fields(package: Path) -> set[str]:
    """Names of the attributes that the package's classes declare or set."""
    names: set[str] = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names |= {target.attr for target, is_own in assigned(tree) if is_own}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                declared = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
                names |= {target.id for target in declared if isinstance(target, ast.Name)}
    return names


def test_the_simulator_writes_no_field_of_a_worker() -> None:
    of_workers_alone = fields(WORKER) - fields(SIM)
    assert {"cached_len", "num_pages", "pages", "lock_ref"} <= of_workers_alone
    found = [
        f"{path.relative_to(SIM)}:{target.lineno}: {ast.unparse(target)}"
        for path in sorted(SIM.rglob("*.py"))
        for target, is_own in assigned(ast.parse(path.read_text()))
        if not is_own and target.attr in of_workers_alone
    ]
    assert found == []
