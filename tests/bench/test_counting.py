"""The counter of instructions, which benchmarks use."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.router.counting import Counter, callgrind

# For each line, the number in it: so many rounds.
ROUNDS = "while read n; do i=0; while [ $i -lt $n ]; do i=$((i+1)); done; echo; done"


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instructions_are_those_of_the_work_between_start_and_count(tmp_path: Path) -> None:
    command = [*callgrind(tmp_path), "sh", "-c", ROUNDS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def counted(rounds: int) -> int:
            assert process.stdin is not None
            assert process.stdout is not None
            counter.start()
            print(rounds, file=process.stdin, flush=True)
            process.stdout.readline()
            return counter.instructions()

        counter = Counter(process.pid, tmp_path)
        print(1, file=process.stdin, flush=True)
        process.stdout.readline()  # it is there
        few, many = counted(100), counted(1100)
        assert (many - few) == pytest.approx(10 * few, rel=0.5)
        assert counted(100) == pytest.approx(few, rel=0.05)
        process.stdin.close()


def test_without_valgrind_the_counter_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt install valgrind"):
        callgrind(tmp_path)
