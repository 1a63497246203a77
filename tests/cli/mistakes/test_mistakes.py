"""What `pando` says to a hundred mistakes, as docs/mistakes.md shows it."""

import subprocess
import sys

import pytest


@pytest.mark.long
def test_mistakes_get_the_answers_on_the_page() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "tests.cli.mistakes.sheet", "--check"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
