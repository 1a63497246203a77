"""One process and the group of its descendants: output, end, signals."""

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pando_fleet.guard import Guard

LAST_LINES = 20  # of output, to show after a crash
LONGEST_LINE = 16 * 1024  # bytes; longer ones are relayed in pieces

Relay = Callable[[str, str], None]  # takes the process's name and a line of its output


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start. Put secrets into `environment`: every user can see arguments."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]  # added to our own


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended."""

    code: int  # as in subprocess: negative is the signal that killed it
    last_lines: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The first error in its last output, as later ones follow from it; else its last line."""
        records = [log_record(line) for line in self.last_lines]
        for record in records:
            if record.get("level") in ("error", "critical"):
                return str(record["event"])
        return str(records[-1]["event"]) if records else "it wrote no output"

    def __str__(self) -> str:
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"


def log_record(line: str) -> dict[str, Any]:
    """A line of output as a log record; a line from no logger becomes its record's event."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    return record if isinstance(record, dict) and "event" in record else {"event": line}


class Process(asyncio.SubprocessProtocol):
    """A process that leads its own session, so that a terminal's Ctrl-C does not reach it, and its
    own process group, so that its children end with it: when the process has ended, the rest of the
    group is killed at once."""

    def __init__(self, name: str, guard: Guard, relay: Relay) -> None:
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._name = name
        self._guard = guard
        self._relay = relay
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._unfinished = b""  # the beginning of an incomplete line

    @classmethod
    async def start(cls, command: Command, guard: Guard, relay: Relay) -> "Process":
        """Start the command; `ended` has its result once it and all its output have ended."""
        _, process = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(command.name, guard, relay),
            *guard.watched(command.arguments),
            env={**os.environ, **command.environment},
            stdin=guard.pipe,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        return process

    def terminate(self) -> None:
        """Ask the process itself, not its children, to end."""
        with contextlib.suppress(ProcessLookupError):
            self._transport.terminate()

    def kill(self) -> None:
        """End the process and its children at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), signal.SIGKILL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > LONGEST_LINE:
            lines.append(self._unfinished)
            self._unfinished = b""
        for line in lines:
            self._take_line(line)

    def process_exited(self) -> None:
        self.kill()
        self._guard.forget(self._transport.get_pid())

    def connection_lost(self, error: Exception | None) -> None:
        self._take_line(self._unfinished)
        code = self._transport.get_returncode()
        assert code is not None
        if not self.ended.done():  # cancelled if nothing waits for it any more
            self.ended.set_result(Exit(code, tuple(self._last_lines)))

    def _take_line(self, data: bytes) -> None:
        if line := data.decode(errors="replace").rstrip():
            self._last_lines.append(line)
            self._relay(self._name, line)
