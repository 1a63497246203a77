"""The memory of this machine, or of the container on it."""

import os
from pathlib import Path

CPU_BYTES = 2 * 2**30
"""Default memory limit on the CPU, for weights and KV pool of all ranks of a worker together."""

MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")
"""The container's limit in version 2 of control groups: bytes, or `max` for none."""


def machine_bytes() -> int:
    """What all processes here may take together, at most."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = MEMORY_MAX.read_text().strip()
    except OSError:
        return there
    return there if limit == "max" else min(there, int(limit))
