"""How many cores this process may use, which in a pod are fewer than the node has."""

import os
import sys
from pathlib import Path

# Of the container that this runs in, in version 2 of control groups: a quota in microseconds, or
# `max` for none, and the period that it is for. The root of a machine without containers has none.
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Whole ones, at least 1: those that the process may run on, as far as the quota lets it use
    them all the time.

    Raises:
        ValueError: the file is there, but is not of that form.
    """
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = CPU_MAX.read_text().split()
    except FileNotFoundError:
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))
