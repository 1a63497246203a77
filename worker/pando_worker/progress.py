"""How far an engine that starts has come: what it does, and which share of that is done."""

from collections.abc import Callable
from enum import StrEnum


class Stage(StrEnum):
    LIBRARIES = "libraries"  # torch and the rest are imported
    WEIGHTS = "weights"
    KERNELS = "kernels"  # compiled, or raced on a CPU
    MEMORY = "memory"  # trial steps show what steps take
    GRAPHS = "graphs"  # decode steps are recorded


Report = Callable[[Stage, float], None]
"""Called when a stage begins, with 0.0, and then with its done share where that is known."""


def in_words(stage: Stage, done: float) -> str:
    """Such as "weights, 45 %"."""
    return f"{stage}, {done:.0%}".replace("%", " %") if done else str(stage)


def unreported(stage: Stage, done: float) -> None:
    """The `Report` of an engine whose start is not watched."""
