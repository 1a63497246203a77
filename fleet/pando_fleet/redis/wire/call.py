"""One command on its way: its bytes, and who gets the reply."""

from collections.abc import Callable
from typing import Protocol

import hiredis

Reply = object
"""What Redis said: bytes, int, None or a list of these; or the FleetError why there is none."""

Answer = Callable[[Reply], None]


class Call:
    """A packed command that may run twice with the effect of once; `answer` is called once."""

    __slots__ = ("answer", "key", "packed", "repeated", "script", "sent_at")

    def __init__(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        self.key = key  # what it works on: tells the server; '' for the connection's own needs
        self.packed = packed
        self.answer = answer
        self.script = script  # the packed SCRIPT LOAD that it may need first
        self.repeated = False
        self.sent_at = 0.0


class Line(Protocol):
    """What commands are sent over; `Wire` is one."""

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        """As `Wire.send`."""
        ...

    def flush(self) -> None:
        """As `Wire.flush`."""
        ...


def pack(*args: str | bytes | int | float) -> bytes:
    packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # its stub takes one item
    return packed
