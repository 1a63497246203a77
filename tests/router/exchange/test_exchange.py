"""Only an exchange changes its fields, and each listener is called for the events it overrides."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pando_router
from pando_router.core.route import Route
from pando_router.exchange.exchange import Audience, Exchange, Listener, Order

PACKAGE = Path(pando_router.__file__).parent


def changes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Places that set or delete a field of an exchange, found by the usual names of variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name.strip("_") in ("exchange", "last_try", "tried"):
                yield node.lineno, node.attr


def test_nobody_else_changes_an_exchange() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {field}"
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "exchange" / "exchange.py"
        for line, field in changes(ast.parse(path.read_text()))
    ]
    assert not found


@pytest.mark.parametrize("line", ["exchange.status = 1", "self._exchange.tries += 1"])
def test_a_change_from_outside_would_be_found(line: str) -> None:
    assert list(changes(ast.parse(line)))


def test_what_a_request_asks_for_never_changes() -> None:
    assert Order.__struct_config__.frozen


def test_a_listener_hears_the_events_that_it_overrides() -> None:
    class Ends(Listener):
        def ended(self, exchange: Exchange) -> None: ...

    class Tries(Listener):
        def placed(self, exchange: Exchange, route: Route) -> None: ...

        def failed(self, *_: object) -> None: ...

    ends, tries = Ends(), Tries()
    audience = Audience(ends, tries)
    heard = {event: listeners for event, listeners in vars(audience).items() if listeners}
    assert heard == {"ended": (ends.ended,), "placed": (tries.placed,), "failed": (tries.failed,)}


def test_an_audience_has_every_event_of_a_listener() -> None:
    events = {name for name, value in vars(Listener).items() if callable(value)}
    assert events == set(vars(Audience()))


def test_an_exchange_is_itself_and_no_other() -> None:
    """Listeners use the exchange as a key for their notes."""
    assert Exchange.__hash__ is object.__hash__
