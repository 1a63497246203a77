"""Mutants of a Python file: swapped comparisons and operators, dropped calls, changed constants.

Annotations, decorators and log lines are left alone: no behaviour depends on them.
"""

import ast
from collections.abc import Iterator

from tests.mutation.mutant import Mutant

_COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
_ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.Mult(),
}
_SWAPPED_NAMES = {"min": "max", "max": "min"}
_LOGGERS = ("log.", "_log.", "logger.", "logging.", "warnings.")


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    starts = [0]  # bytes before each line
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, kind, by in _changes(ast.parse(source)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        yield Mutant(file, kind, begin, end, by.encode())


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Each node that may be changed, the kind of the change, and the new text."""
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(_LOGGERS):
        return
    if isinstance(node, ast.expr | ast.stmt):
        for kind, changed in _changed(node):
            text = ast.unparse(changed)
            is_whole = isinstance(changed, ast.stmt | ast.Constant | ast.Name)
            yield node, kind, text if is_whole else f"({text})"
    for child in _behaviour(node):
        yield from _changes(child)


def _changed(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right):
            yield "comparison", ast.Compare(left, [_COMPARISONS[type(op)]], right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, _ARITHMETIC[type(op)], right)
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in _ARITHMETIC:
            yield "arithmetic", ast.AugAssign(target, _ARITHMETIC[type(op)], value)
        case ast.BoolOp(op=op, values=values):
            yield "logic", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "logic", operand
        case ast.Name(id=name) if name in _SWAPPED_NAMES:
            yield "arithmetic", ast.Name(_SWAPPED_NAMES[name])
        case ast.Expr(value=ast.Call() | ast.Await() as call) if not _is_super(call):
            yield "call", ast.Pass()
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            yield "constant", ast.Constant(value + 1)


def _behaviour(node: ast.AST) -> Iterator[ast.AST]:
    """The children that behaviour depends on and that have known places in the source."""
    if isinstance(node, ast.JoinedStr):  # before Python 3.12 its parts have no places
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _is_super(call: ast.expr) -> bool:
    """Whether it calls a base class's constructor, without which nothing works."""
    return ast.unparse(call).startswith("super()")
