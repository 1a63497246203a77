"""One GGUF file served by Pando's worker, and by llama.cpp's server from a Python of its own.

That Python has the package `xllamacpp` and nothing of Pando: its binaries bring an OpenMP of their
own.
"""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import psutil

from pando.up.free_port import free_port

READY_S = 120.0
MIB = 2**20

# Prints its address and serves until its standard input ends.
_LLAMA_CPP = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_parallel, params.n_ctx, params.port = int(sys.argv[3]), int(sys.argv[4]), 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[2])
server = xllamacpp.Server(params)
print("ADDRESS", server.listening_address, flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class GgufServer:
    name: str
    url: str
    pid: int
    ready_s: float

    @property
    def memory_mib(self) -> float:
        """Of all its processes, what they share counted once."""
        process = psutil.Process(self.pid)
        family = [process, *process.children(recursive=True)]
        return float(sum(one.memory_full_info().pss for one in family)) / MIB


@contextmanager
def pando_worker(model: str, threads: int, flags: Sequence[str] = ()) -> Iterator[GgufServer]:
    port = free_port("127.0.0.1")
    own = ["--model", model, "--threads", str(threads), "--port", str(port)]
    started = time.monotonic()
    command = [sys.executable, "-m", "pando", "worker", *own, "--log-level", "warning", *flags]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command) as process:
        try:
            while not _is_ready(f"{url}/readyz"):
                if process.poll() is not None or time.monotonic() > started + READY_S:
                    raise click.ClickException("the worker is not ready")
                time.sleep(0.05)
            yield GgufServer("Pando", url, process.pid, time.monotonic() - started)
        finally:
            process.terminate()


@contextmanager
def llama_cpp(
    python: str, file: Path, threads: int, *, slots: int, context: int
) -> Iterator[GgufServer]:
    """
    Args:
        context: tokens of all slots together
    """
    started = time.monotonic()
    command = [python, "-c", _LLAMA_CPP, str(file), str(threads), str(slots), str(context)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = (line for line in process.stdout if line.startswith("ADDRESS"))
        if (line := next(lines, None)) is None:
            raise click.ClickException(f"{python} cannot serve {file} with xllamacpp")
        seconds = time.monotonic() - started
        yield GgufServer("llama.cpp", line.split()[1], process.pid, seconds)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
