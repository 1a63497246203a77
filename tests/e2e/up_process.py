"""`pando up` as a user starts it, in a separate process. An environment variable that only its
processes inherit distinguishes them from everything else on the machine.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import termios
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.ports import free_port
from tests.waiting import PATIENCE_S, read_each, until

READY_S = 240.0  # generous: other work may share the machine
END_S = 120.0
MARKER = "PANDO_E2E_RUN"


_PATIENT = {"PANDO_ROUTER_PLACEMENT_TIMEOUT": "5"}
"""On a busy machine Redis may answer later than requests wait for it, and then a placement knows no
prefixes."""


def _make_stdin_our_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class UpProcess:
    """One `pando up`. Leaving `with` kills its remaining processes."""

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        terminal: int | None = None,
    ) -> None:
        """`terminal` is the slave side of a pseudo terminal for its standard streams and for
        Ctrl-C; by default it has no terminal."""
        self.port = free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{self.port}"
        self.marker = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory(prefix="pando-e2e-")
        self._stdout, self._stderr = (Path(self._folder.name, n) for n in ("stdout", "stderr"))
        command = [sys.executable, "-m", "pando", "up", "--model", "tiny"]
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *arguments],
                env={
                    **os.environ,
                    "TMPDIR": self._folder.name,  # other fleets run at the same time
                    **_PATIENT,
                    **(environment or {}),
                    MARKER: self.marker,
                },
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=stdout if terminal is None else terminal,
                stderr=stderr if terminal is None else terminal,
                start_new_session=terminal is not None,
                preexec_fn=None if terminal is None else _make_stdin_our_terminal,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            print(self.output)
        for process in self.processes():
            process.kill()
        self.process.wait()
        self._folder.cleanup()

    @property
    def output(self) -> str:
        """All its output so far, standard output first."""
        return self._stdout.read_text() + self._stderr.read_text()

    @property
    def welcome(self) -> str:
        """Its standard output."""
        return self._stdout.read_text()

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log lines so far, including those of its parts."""
        *lines, _unfinished = self._stderr.read_text().split("\n")
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_ready(self) -> Self:
        def is_ready() -> bool:
            assert self.process.poll() is None, f"pando up ended:\n{self.output}"
            return "is served at" in self._stdout.read_text()

        until(is_ready, "pando up is ready", READY_S)
        return self

    def redis_sockets(self) -> list[Path]:
        """The sockets of its embedded servers, each in a private directory."""
        return list(Path(self._folder.name).glob("pando-*/redis.sock"))

    def processes(self) -> list[psutil.Process]:
        """Its own process and all living processes that it started, directly or indirectly."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def part(self, name: str) -> psutil.Process:
        """The process that leads a part: "router", "worker-0"."""
        process = self.find_part(name)
        assert process, f"there is no {name}"
        return process

    def find_part(self, name: str) -> psutil.Process | None:
        for process, words in read_each(self.processes(), psutil.Process.cmdline):
            is_component = words[1:4] == ["-m", "pando", name.partition("-")[0]]
            if is_component and (name == "router" or name in words):
                return process
        return None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_end(self) -> int:
        """Its exit code."""
        return self.process.wait(END_S)

    def get(self, path: str, base: str | None = None) -> bytes:
        """The answer's body, from the router or from the replica at the URL `base`."""
        with urllib.request.urlopen((base or self.url) + path, timeout=PATIENCE_S) as answer:
            body: bytes = answer.read()
            return body

    def replicas(self) -> dict[str, dict[str, Any]]:
        """The router's /fleet by replica; empty while the router does not answer."""
        try:
            fleet = json.loads(self.get("/fleet"))
        except (urllib.error.URLError, OSError):
            return {}
        return {row["replica"]: row for pool in fleet["pools"].values() for row in pool}

    def metric(self, replica: str, sample: str) -> float:
        """A sample of a worker's metrics, such as 'pando_worker_kv_tokens{state="pinned"}'."""
        text = self.get("/metrics", self.replicas()[replica]["url"]).decode()
        for line in text.splitlines():
            if line.startswith(sample + " "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"{replica} has no {sample} in:\n{text}")

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return bool(
                process.environ().get(MARKER) == self.marker
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return False
