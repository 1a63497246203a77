"""What glibc does with freed memory, by the page faults that follow."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc")

# Steps that each fill and free three blocks of 20 MB, in a thread, as a model's steps do. The first
# ones touch the memory; those that are counted find it again, or not.
_STEPS = """
import sys, threading
from resource import RUSAGE_SELF, getrusage
from pando_fleet.free_memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def step():
    blocks = [b"x" * 20_000_000 for _ in range(3)]
def steps():
    for _ in range(3):
        step()
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step()
    print((getrusage(RUSAGE_SELF).ru_minflt - before) // 10)
thread = threading.Thread(target=steps)
thread.start()
thread.join()
"""


def _faults(way: str) -> int:
    """Page faults of a step, in a process of its own: its allocator's settings last."""
    command = [sys.executable, "-c", _STEPS, way]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_an_engines_steps_find_the_memory_that_earlier_ones_freed() -> None:
    assert _faults("plain") > 5_000
    assert _faults("kept") < 100
