"""`pando demo`, run like `make demo`."""

import subprocess
import sys

import pytest

# It compares times, so nothing else may run beside it.
pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_the_demo_shows_cache_aware_routing_ahead() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pando", "demo"], capture_output=True, text=True, timeout=110
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "round_robin" in result.stdout
    assert "cache_aware is better" in result.stdout
