"""Keeps races' outcomes in the user's cache: a machine races once for each model and setting.

If several workers start at the same time, one races and the others wait for its file, so they do
not disturb the race. What other programs disturbed is used by workers that start within ten
minutes: later ones race again. To race again in any case, remove the folder `races`.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from pando_worker.runner.cpu.race import SECONDS, Outcome
from pando_worker.user_cache import cache_directory, forget_oldest, one_at_a_time, write_whole

log = logging.getLogger("pando.worker.cpu")

KEPT = 64  # outcomes; the oldest are removed
PATIENCE_S = 10 * SECONDS  # to wait for another worker's race
# How long the outcome of a disturbed race is used: a race loads a busy machine even more.
DISTURBED_S = 600.0


def raced_once(conditions: object, race: Callable[[], Outcome]) -> Outcome:
    """The kept outcome under these conditions, or that of a race run now.

    Args:
        conditions: everything that the outcome depends on; encoded with msgspec
    """
    name = hashlib.sha256(msgspec.json.encode(conditions)).hexdigest()[:16]
    try:
        folder = cache_directory("races")
        path = folder / f"{name}.json"
        if kept := _read(path):
            return kept
        with one_at_a_time(folder / "lock", PATIENCE_S):
            if kept := _read(path):  # written by the worker that this one waited for
                return kept
            outcome = race()
            write_whole(path, msgspec.json.encode(outcome))
            forget_oldest(folder, "*.json", KEPT)
            return outcome
    except OSError as error:
        log.info("the outcome of the race between kernels cannot be kept: %s", error)
        return race()


def _read(path: Path) -> Outcome | None:
    try:
        outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s is not readable and is ignored: %s", path, error)
        return None
    return outcome if outcome.undisturbed or age < DISTURBED_S else None
