"""`pando sim` within the process of the tests."""

import signal
from collections.abc import Iterator

import pytest

from pando.up.signals import END_SIGNALS


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """The command ignores the signals that end it once it is over, and so would all that later
    tests start."""
    handlers = {number: signal.getsignal(number) for number in END_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
