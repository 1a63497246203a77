"""`--quick` skips exactly the tests that an earlier run found slow."""

import json
import subprocess
import sys
from pathlib import Path

from tests.durations import QUICK_S

ROOT = Path(__file__).parents[1]
FILE = "tests/router/core/test_breaker.py"


def pytest_in(cache: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_what_was_slow_is_left_out_until_a_whole_run_finds_it_fast(tmp_path: Path) -> None:
    names = {n for n in pytest_in(tmp_path, "--collect-only", FILE).splitlines() if "::" in n}
    first, gone = min(names), "tests/gone/test_gone.py::test_gone"
    record = tmp_path / "v/pando/slow"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps([first, gone]))
    quick = pytest_in(tmp_path, "--quick", "--collect-only", FILE)
    assert {name for name in quick.splitlines() if "::" in name} == names - {first}
    pytest_in(tmp_path, "--quick", FILE)
    assert json.loads(record.read_text()) == [first, gone], "it sees too little to judge"
    said = pytest_in(tmp_path, "--durations=0", f"--durations-min={QUICK_S}", FILE)
    slow = [line.split()[-1] for line in said.splitlines() if " call " in line]
    assert json.loads(record.read_text()) == sorted(slow)
