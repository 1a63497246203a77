"""This machine's processor and its features, as far as the system reports them."""

import platform
from pathlib import Path

# The fields that decide `-march=native`, and the model's name.
_KEYS = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")


def description() -> str:
    """A description that is equal for equal processors."""
    lines = {line for line in _cpuinfo() if line.partition(":")[0].strip() in _KEYS}
    return "\n".join(sorted(lines)) or platform.processor()


def features() -> frozenset[str]:
    """The first core's features by Linux's names; empty if the system does not report them."""
    for line in _cpuinfo():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(words.split())
    return frozenset()


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
