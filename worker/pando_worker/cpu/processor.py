"""What this machine's processor is and can do, as far as the system says."""

import platform
from pathlib import Path

# What `-march=native` looks at, and the name that people know it by.
_KEYS = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")


def description() -> str:
    """Equal for equal processors."""
    lines = {line for line in _cpuinfo() if line.partition(":")[0].strip() in _KEYS}
    return "\n".join(sorted(lines)) or platform.processor()


def features() -> frozenset[str]:
    """What the first core can do, by Linux's names; empty where the system does not say."""
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
