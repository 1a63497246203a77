"""Every benchmark's --help says what it measures, without starting it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARSED = re.compile(r"argparse|click")
SERVERS = {"bench/router/routing/bare.py"}  # a part of a benchmark that runs as a separate process


def programs() -> dict[str, str]:
    """Each file that runs as a program, and its text."""
    files = {str(file.relative_to(ROOT)): file.read_text() for file in ROOT.glob("bench/**/*.py")}
    return {
        name: text
        for name, text in files.items()
        if 'if __name__ == "__main__":' in text and name not in SERVERS
    }


def test_every_benchmark_reads_its_arguments() -> None:
    assert not [name for name, text in programs().items() if not PARSED.search(text)]


@pytest.mark.parametrize(
    "name", ["router.placement", "router.tree_memory", "router.observability", "engine.grammar"]
)
def test_help_is_shown_and_nothing_starts(name: str) -> None:
    words = [sys.executable, "-m", f"bench.{name}", "--help"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("usage: ")
    assert "Run: python -m" in ended.stdout or f"python -m bench.{name}" in ended.stdout
    assert len(ended.stdout.splitlines()) < 30, "no result follows the help"
