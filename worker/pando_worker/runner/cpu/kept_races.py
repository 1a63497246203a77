"""Races' outcomes in the user's cache, so that a machine races once for each model and setting.

Workers that start at once do not disturb each other: one races, and the others wait for its file.
To race anew, remove the folder `races`.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from pando_worker.runner.cpu.race import SECONDS, Outcome
from pando_worker.user_cache import cache_directory, forget_oldest, one_at_a_time, write_whole

log = logging.getLogger("pando.worker.cpu")

KEPT = 64  # outcomes; those written first go
PATIENCE_S = 10 * SECONDS  # for another worker's race


def raced_once(conditions: object, race: Callable[[], Outcome]) -> Outcome:
    """The outcome under these conditions, raced now where none is kept.

    Args:
        conditions: all that the outcome depends on, as msgspec encodes it
    """
    name = hashlib.sha256(msgspec.json.encode(conditions)).hexdigest()[:16]
    try:
        folder = cache_directory("races")
        path = folder / f"{name}.json"
        if kept := _read(path):
            return kept
        with one_at_a_time(folder / "lock", PATIENCE_S):
            if kept := _read(path):  # of the one that was waited for
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
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s is not readable and is ignored: %s", path, error)
        return None
