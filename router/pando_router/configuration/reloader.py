"""Watches the settings file and takes it over when it has changed, or when somebody says so.

The file is looked at once a second rather than by notification, so that it works with every file
system and with the symbolic links by which Kubernetes swaps a ConfigMap's content. A file that is
not right changes nothing.
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
    """Where settings come from. It goes to child processes, so `read` can be pickled."""

    file: Path
    read: Callable[[], RouterSettings]  # all sources merged; raises an exception with one line


class Reloader:
    def __init__(self, source: SettingsSource | None, live: Live, metrics: Metrics) -> None:
        self._source = source
        self._live = live
        self._failures = metrics.reload_failures
        # Not as it is now: the settings may have been read some time before it became this router.
        self._stamp: object = None
        self._now = asyncio.Event()

    def now(self) -> None:
        """Reads the settings, changed or not."""
        self._now.set()

    async def run(self) -> None:
        """Until cancelled."""
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
                logger.warning("there is no settings file to read anew; --config names one")
            return
        # A stamp taken before reading: what is written meanwhile differs from it.
        stamp = self._stamp_of(source.file)
        if stamp == self._stamp and not at_once:
            return
        self._stamp = stamp
        try:
            # Elsewhere: it reads all API keys, too.
            changed = self._live.adopt(await asyncio.to_thread(source.read))
        except Exception as error:  # whatever is wrong with the file, the router goes on
            self._failures.inc()
            logger.error(
                "the settings stay as they were",
                extra={"file": str(source.file), "error": str(error) or repr(error)},
            )
            return
        if changed or at_once:
            logger.info("settings read", extra={"changed": changed})

    def _stamp_of(self, file: Path) -> object:
        """Differs when the file, or a key file that it names, has changed. Key files that were
        named just now make a difference, too: they are looked at once more, as they should be."""
        keys = (one.api_key_file for one in self._live.settings.upstream)
        return [_stat(path) for path in (file, *filter(None, keys))]


def _stat(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_ino, found.st_dev, found.st_size
