"""The access log: a line for a sample of the requests, and for each that failed or was slow.

A line costs more than the request itself (docs/observability.md has the numbers), so a busy router
writes few: what all requests have in common is in the metrics.
"""

import logging
import random
from typing import Any, Protocol

from pando_router.live import Live

logger = logging.getLogger("pando.router")

CUT = 500
"""Statuses from here on are the servers' failures. Those below it are the clients' own, which
anyone can cause at will: they are sampled."""


class Line(Protocol):
    """What the log wants to know of a request that is over."""

    @property
    def status(self) -> int: ...

    @property
    def lost(self) -> str:
        """How a replica was lost amid its answer; empty where none was."""


class AccessLog:
    """`wants` first: the fields are only to be gathered for a line that will be written."""

    def __init__(self, live: Live, rng: random.Random) -> None:
        self._random = rng.random
        self._live = live

    def wants(self, line: Line, duration_s: float) -> bool:
        settings = self._live.settings
        return (
            line.status >= CUT
            or duration_s >= settings.access_log_slow_seconds
            or self._random() < settings.access_log_sample
            or bool(line.lost)
        ) and logger.isEnabledFor(logging.INFO)

    def write(self, **fields: Any) -> None:
        logger.info("request", extra=fields)
