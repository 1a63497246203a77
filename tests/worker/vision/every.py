"""Every family that sees."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.families import FAMILIES
from tests.worker.vision.qwen import FAMILIES as QWEN
from tests.worker.vision.qwen import QwenSeer, save_qwen


def _seer(path: Path, save: Callable[[Path], Path]) -> Seer:
    return Seer(save(path))


def _qwen(path: Path, family: str) -> Seer:
    return QwenSeer(save_qwen(path, family))


EVERY: dict[str, Callable[[Path], Seer]] = {
    **{name: partial(_seer, save=save) for name, save in FAMILIES.items()},
    **{name: partial(_qwen, family=name) for name in QWEN},
}
