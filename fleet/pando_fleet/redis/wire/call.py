"""One command in progress: its bytes, and the receiver of its reply."""

from collections.abc import Callable
from typing import Protocol

import hiredis

Reply = object
"""Redis's reply: bytes, int, None or a list of these; or a FleetError."""

Answer = Callable[[Reply], None]


class Call:
    """A packed command that must be idempotent, since it may run twice; `answer` is called once."""

    __slots__ = ("answer", "key", "packed", "repeated", "script", "sent_at")

    def __init__(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        self.key = key  # determines the server; '' for the connection's own commands
        self.packed = packed
        self.answer = answer
        self.script = script  # the packed SCRIPT LOAD that it may need first
        self.repeated = False
        self.sent_at = 0.0


class Line(Protocol):
    """Sends commands; `Wire` is one."""

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        """Like `Wire.send`."""
        ...

    def flush(self) -> None:
        """Like `Wire.flush`."""
        ...


def pack(*args: str | bytes | int | float) -> bytes:
    packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # its stub takes one item
    return packed
