"""Watches the settings file, and adopts it when it has changed or on request.

The file is checked once a second instead of by notification, which also works with every file
system and with the symbolic links by which Kubernetes swaps a ConfigMap's content. An invalid file
changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.telemetry.metrics import Metrics

LOOK_S = 1.0

logger = logging.getLogger("pando.router")


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """Where settings come from. It is pickled for child processes, so `read` must be picklable."""

    file: Path
    read: Callable[[], RouterSettings]  # merges all sources; raises an exception with one line


class Reloader:
    def __init__(self, source: SettingsSource | None, live: Live, metrics: Metrics) -> None:
        self._source = source
        self._live = live
        self._failures = metrics.reload_failures
        # Not the current stamp: the file may have changed since the settings were read.
        self._stamp: object = None
        self._now = asyncio.Event()

    def now(self) -> None:
        """Reads the settings again, even if the file has not changed."""
        self._now.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            at_once = self._now.is_set()
            self._now.clear()
            await self.look(at_once=at_once)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._now.wait()
            except TimeoutError:
                pass

    async def look(self, *, at_once: bool = False) -> None:
        if (source := self._source) is None:
            if at_once:
                logger.warning("no settings file to reload; name one with --config")
            return
        # The stamp is taken before reading, so that a write during the reading changes it.
        stamp = self._stamp_of(source.file)
        if stamp == self._stamp and not at_once:
            return
        self._stamp = stamp
        try:
            # In a thread, because it also reads all API keys.
            changed = self._live.adopt(await asyncio.to_thread(source.read))
        except Exception as error:  # whatever is wrong with the file, the router continues
            self._failures.inc()
            logger.error(
                "the old settings stay in effect",
                extra={"file": str(source.file), "error": str(error) or repr(error)},
            )
            return
        if changed or at_once:
            logger.info("settings read", extra={"changed": changed})

    def _stamp_of(self, file: Path) -> object:
        """Changes when the file, or a key file that it names, has changed. A key file named for the
        first time also changes it, which causes one more reload, as it should."""
        keys = (one.api_key_file for one in self._live.settings.upstream)
        return [_stat(path) for path in (file, *filter(None, keys))]


def _stat(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_ino, found.st_dev, found.st_size
