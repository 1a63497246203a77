"""How long this process's threads waited for a core that other programs had, by Linux's counters.

A measurement of a few milliseconds during which a thread waited says nothing of the code that ran.
"""

from pathlib import Path

_THREADS = Path("/proc/self/task")


def waited_s() -> float:
    """Seconds in which threads were ready to run and had no core, summed over the threads that
    there are, since each began. 0.0 on a system that does not count them."""
    try:
        threads = list(_THREADS.iterdir())
    except FileNotFoundError:
        return 0.0
    return sum(map(_waited_ns, threads)) / 1e9


def _waited_ns(thread: Path) -> int:
    try:
        counters = (thread / "schedstat").read_bytes().split()
    except OSError:  # the thread has just ended, or the system does not count
        return 0
    # Nanoseconds on a core, nanoseconds in line for one, and how often it was on one.
    return int(counters[1])
