"""Runs tests with one mutant, in a copy of the tree, so that the tree itself stays intact."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, copytree
from signal import SIGKILL
from tempfile import TemporaryDirectory, TemporaryFile

from tests.mutation.mutant import Mutant

_ROOT = Path(__file__).parents[2]
_PARTS = ("fleet", "router", "worker", "operator", "sim", "cli")
_SLOWER = 4  # times as slow as without a mutant counts as hanging
_START_S = 20.0  # of servers and imports, on a busy machine
_PASSED = 0  # pytest's exit code
_OPTIONS = ("-x", "-q", "-rfE", "-p", "no:cacheprovider", "--hypothesis-profile=mutants")
_ONE_SERVER = ("-k", "not redis_server")  # of tests that run on both servers, only Valkey
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+)", re.MULTILINE)


class TestsFailedError(Exception):
    """Tests fail without any mutant, so they cannot judge one."""

    __test__ = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the tree, in which one mutant at a time is tried."""

    root: Path

    def failure(self, tests: tuple[str, ...], timeout_s: float) -> str | None:
        """The first test that fails, or a timeout; None if all pass."""
        paths = os.pathsep.join(str(self.root / part) for part in (*_PARTS, "."))
        command = [sys.executable, "-B", "-m", "pytest", *_OPTIONS, *_ONE_SERVER, *tests]
        with TemporaryFile() as said:  # a pipe would stay open if a server outlives its test
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env={**os.environ, "PYTHONPATH": paths},
                stdout=said,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # to end a hanging mutant with its children
            )
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return f"more than {timeout_s:.0f} s"
            finally:
                _end_session(process.pid)
                process.wait()
            said.seek(0)
            named = _FAILED.search(said.read().decode(errors="replace"))
        if status == _PASSED:
            return None
        return named[1] if named else f"pytest exits with {status}"

    def seconds(self, tests: tuple[str, ...]) -> float:
        """The duration of the tests without a mutant. Raises TestsFailedError if they fail twice: a
        busy machine may fail them once."""
        for _ in range(2):
            begun = time.monotonic()
            if (failure := self.failure(tests, timeout_s=600)) is None:
                return time.monotonic() - begun
        raise TestsFailedError(f"without a mutant, {failure} fails")

    def killer(self, mutant: Mutant, tests: tuple[str, ...], usual_s: float) -> str | None:
        """The test that fails, or the time the tests took; None if the mutant survives."""
        file = self.root / mutant.file
        source = file.read_bytes()
        file.write_bytes(mutant.applied(source))
        try:
            return self.failure(tests, _START_S + _SLOWER * usual_s)
        finally:
            file.write_bytes(source)


def _end_session(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, SIGKILL)


@contextmanager
def copied(of: Copy | None = None) -> Iterator[Copy]:
    """A copy of the tree's files known to git, with changes and new files; or of another copy."""
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
