"""Runs the blocks of the pages from a clean clone: python -m tests.docs [PAGE ...].

The clone is of the last commit. It uses this checkout's .venv, whose packages are then the clone's;
with --install it makes its own, as a reader does, which takes minutes. The ports that the pages use
(8000, 30000) must be free. Prints a line for each block; exits with 1 if one failed.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.docs.blocks import ROOT, Block, blocks, pages, steps

PATIENCE_S = 300.0  # for one command, and for a server's first answer
INSTALL_S = 1800.0  # four minutes on two cores that are idle
PORTS = (8000, 30000)
PARTS = ("fleet", "router", "worker", "operator", "sim", "cli", "")


class FailedError(Exception):
    """A block did not do what its page says."""


class Reader:
    """Somebody who follows one page after the other in `clone`."""

    def __init__(self, clone: Path) -> None:
        self._clone = clone
        self._servers: list[subprocess.Popen[bytes]] = []
        paths = [str(clone / part) for part in PARTS]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PANDO_")},
            "PATH": f"{clone / '.venv/bin'}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(paths),
            "TMPDIR": str(clone.parent),
        }

    def install(self) -> None:
        """As the first `make up` would. Raises FailedError."""
        started = time.monotonic()
        self._run(["make", "install"], INSTALL_S)
        print(f"ran      make install, {time.monotonic() - started:.1f} s", flush=True)

    def follow(self, block: Block) -> None:
        """Raises FailedError."""
        if block.until:
            self._serve(block)
        elif block.language == "console":
            for step in steps(block):
                _compare(step.printed, self._run(["bash", "-c", step.command]))
        elif block.language == "sh":
            self._run(["bash", "-euo", "pipefail", "-c", block.text])
        else:
            self._run(["python", "-c", block.text])

    def close(self) -> None:
        """Ends the servers that the page started."""
        for server in self._servers:
            with suppress(ProcessLookupError):  # it could not start
                os.killpg(server.pid, signal.SIGINT)
        for server in self._servers:
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
        self._servers = []

    def _run(self, command: list[str], patience_s: float = PATIENCE_S) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=self._clone,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=patience_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FailedError(f"took longer than {patience_s:g} s") from None
        if done.returncode:
            raise FailedError(
                f"exit code {done.returncode}: {done.stdout[-500:]}{done.stderr[-900:]}"
            )
        return done.stdout

    def _serve(self, block: Block) -> None:
        commands = [step.command for step in steps(block)] or [block.text]
        with (self._clone.parent / "server.log").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", "\n".join(commands)],
                cwd=self._clone,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._servers.append(server)
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(block.until):
            if server.poll() is not None or time.monotonic() > deadline:
                log_text = (self._clone.parent / "server.log").read_text(errors="replace")
                raise FailedError(f"{block.until} does not answer: {log_text[-900:]}")
            time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _compare(shown: tuple[str, ...], printed: str) -> None:
    """Each line that the page shows was printed, in its order."""
    lines = iter(line.rstrip() for line in printed.splitlines())
    for wanted in shown:
        if wanted.rstrip() not in lines:
            raise FailedError(f"it did not print {wanted!r} but:\n{printed[-900:]}")


@contextmanager
def clean_clone(*, install: bool) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pando-docs-") as folder:
        clone = Path(folder, "pando")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        if not install:
            (clone / ".venv").symlink_to((ROOT / ".venv").resolve())
            os.utime(clone / "pyproject.toml", (0, 0))  # older than the venv, so make keeps it
        yield clone


def _problem(install: bool) -> str:
    """Why the pages cannot be followed here; empty if they can."""
    if not install and not (ROOT / ".venv/bin/python").exists():
        return f"{ROOT} has no .venv for the clone: run make install there, or give --install"
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return f"port {port}, which the pages use, is in use"
    for program in ("git", "curl", "make"):
        if shutil.which(program) is None:
            return f"{program}, which the pages use, is not installed"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--install", action="store_true", help="make the clone's own .venv")
    options = parser.parse_args(arguments)
    if problem := _problem(options.install):
        parser.exit(2, f"{problem}\n")
    failed = ran = shown = 0
    with clean_clone(install=options.install) as clone:
        if options.install:
            Reader(clone).install()
        for page in [one.resolve() for one in options.pages] or pages():
            reader = Reader(clone)
            try:
                for block in blocks(page):
                    if block.not_run:
                        shown += 1
                        print(f"not run  {block.place}: {block.not_run}", flush=True)
                        continue
                    started = time.monotonic()
                    try:
                        reader.follow(block)
                    except FailedError as error:
                        failed += 1
                        print(f"FAILED   {block.place}: {error}", flush=True)
                    else:
                        ran += 1
                        print(
                            f"ran      {block.place}, {time.monotonic() - started:.1f} s",
                            flush=True,
                        )
            finally:
                reader.close()
    print(f"{ran} ran, {failed} failed, {shown} are not run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
