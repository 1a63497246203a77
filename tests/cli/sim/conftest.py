"""`pando sim` in the tests' own process."""

import signal
from collections.abc import Iterator

import pytest

from pando.up.signals import END_SIGNALS


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Restores the signals: the command ignores them at its end, and processes of later tests would
    inherit that."""
    handlers = {number: signal.getsignal(number) for number in END_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
