"""Runs tests against one mutant, in a copy of the tree, so that the tree itself stays whole."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shutil import copyfile, copytree
from signal import SIGKILL
from tempfile import TemporaryDirectory

from tests.mutation.mutant import Mutant

_ROOT = Path(__file__).parents[2]
_PARTS = ("fleet", "router", "worker", "operator", "sim", "cli")
_SLOWER = 4  # than without a mutant: then it hangs
_START_S = 20.0  # of servers and imports, on a busy machine
_PASSED = 0  # by pytest
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants")
_ONE_SERVER = ("-k", "not redis_server")  # where tests run on two kinds: Valkey alone


class Verdict(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"


class TestsFailedError(Exception):
    """Tests fail without any mutant, so they can say nothing about one."""

    __test__ = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the tree, in which one mutant at a time is tried."""

    root: Path

    def run(self, tests: tuple[str, ...], timeout_s: float) -> int | None:
        """What pytest exits with; None where it took longer than that."""
        paths = os.pathsep.join(str(self.root / part) for part in (*_PARTS, "."))
        command = [sys.executable, "-B", "-m", "pytest", *_OPTIONS, *_ONE_SERVER, *tests]
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a mutant that hangs ends with all that it started
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_session(process.pid)
            process.wait()

    def seconds(self, tests: tuple[str, ...]) -> float:
        """What the tests take while nothing is broken. Raises TestsFailedError."""
        begun = time.monotonic()
        if (status := self.run(tests, timeout_s=600)) != _PASSED:
            raise TestsFailedError(
                f"without a mutant, pytest {' '.join(tests)} exits with {status}"
            )
        return time.monotonic() - begun

    def verdict(self, mutant: Mutant, tests: tuple[str, ...], usual_s: float) -> Verdict:
        file = self.root / mutant.file
        source = file.read_bytes()
        file.write_bytes(mutant.applied(source))
        try:
            status = self.run(tests, _START_S + _SLOWER * usual_s)
        finally:
            file.write_bytes(source)
        return Verdict.SURVIVED if status == _PASSED else Verdict.KILLED


def _end_session(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, SIGKILL)


@contextmanager
def copied(of: Copy | None = None) -> Iterator[Copy]:
    """A copy of what git has of the tree, with what has changed and what is new; or of a copy."""
    with TemporaryDirectory(prefix="pando-mutants-") as folder:
        if of is not None:
            copytree(of.root, folder, dirs_exist_ok=True)
        else:
            _copy_tree(Path(folder))
        yield Copy(Path(folder))


def _copy_tree(to: Path) -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=_ROOT, capture_output=True, check=True).stdout
    for name in names.decode().split("\0"):
        if name and (_ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(_ROOT / name, to / name)
