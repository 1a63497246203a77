"""The number of cores that this process may use; in a pod these are fewer than the node has."""

import os
import sys
from pathlib import Path

# The container's CPU limit in version 2 of control groups: a quota in microseconds, or `max` for
# none, and the period that it applies to. The root of a machine without containers lacks this file.
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """The whole cores, at least 1, that the process may run on and that the quota lets it use all
    the time.

    Raises:
        ValueError: the file has another format.
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
