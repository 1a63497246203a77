"""A worker in a separate process, with the stand-in as its scheduler.

`with WorkerProcess.start(...)` waits until it is ready, and always ends it.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import openai
import psutil

from tests.waiting import PATIENCE_S, pauses

MODEL = Path(__file__).parents[4] / "examples" / "models" / "pando-tiny"
MODEL_NAME = "pando-tiny"


class WorkerProcess:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = ""
        self._log: list[str] = []
        self._ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()

    @classmethod
    @contextmanager
    def start(
        cls,
        *,
        ready: bool = True,
        stand_in: bool = True,
        before: Callable[[], None] | None = None,
        under: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **settings: object,
    ) -> Iterator["WorkerProcess"]:
        """A started worker, by default ready to generate, with the stand-in or the real scheduler.
        `before` runs in the process first; `under` is a command that starts it; `env` is its whole
        environment."""
        options = {"model": str(MODEL), "port": 0, **settings}
        scheduler = ["stand-in"] if stand_in else []
        process = subprocess.Popen(
            [
                *under,
                sys.executable,
                "-m",
                "tests.worker.server.main",
                json.dumps(options),
                *scheduler,
            ],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,
            env={**(os.environ if env is None else env), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        worker = cls(process)
        try:
            if ready:
                worker.url = worker.logged(r"ready at (\S+)")[1]
            yield worker
        finally:
            process.kill()
            process.wait()
            worker._reader.join()

    def logged(self, pattern: str) -> re.Match[str]:
        """Waits for the first log line with the pattern. Fails if the worker ends."""

        def found() -> re.Match[str] | None:
            return next(filter(None, (re.search(pattern, line) for line in self._log)), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, PATIENCE_S)
            match = found()
        assert match, f"{pattern!r} is not in the log:\n{self.log}"
        return match

    @property
    def log(self) -> str:
        return "\n".join(self._log)

    def client(self) -> openai.AsyncOpenAI:
        """OpenAI's own client, without its retries."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def children(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found

    def scheduler(self) -> psutil.Process:
        """The scheduler's process; it is forked, so it is the only child."""
        [found] = psutil.Process(self.process.pid).children()
        return found

    def other_ranks(self) -> list[psutil.Process]:
        children = self.scheduler().children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE_S)

    def _read_log(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._news:
                self._log.append(line.rstrip())
                self._news.notify_all()
        self.process.stderr.close()
        with self._news:
            self._ended = True
            self._news.notify_all()


async def metric(http: aiohttp.ClientSession, name: str, labels: str = "") -> float:
    """The value of one sample of /metrics; 0 while it is absent."""
    async with http.get("/metrics") as answer:
        for line in (await answer.text()).splitlines():
            if line.startswith(f"{name}{labels} "):
                return float(line.split()[-1])
    return 0.0


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = PATIENCE_S) -> None:
    """Polls until the condition holds; fails if it does not in time."""
    async with asyncio.timeout(within_s):
        for pause in pauses():
            if await condition():
                return
            await asyncio.sleep(pause)
