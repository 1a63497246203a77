"""Whether this router records now, and the secret that hides keys: as Redis says for all routers,
otherwise as the settings say."""

import asyncio
import logging

from pando_fleet.records.recording import RecordingSwitch, RecordingSwitches
from pando_fleet.redis.client import FleetError
from pando_router.configuration.live import Live

POLL_S = 1.0
READ_TIMEOUT_S = 2.0

logger = logging.getLogger("pando.router")


class Switch:
    """`run` follows Redis. While Redis is away, the last state goes on."""

    def __init__(self, live: Live, switches: RecordingSwitches, secret: bytes) -> None:
        """`secret` hides the keys unless another router was first, or if it comes from the
        settings."""
        self._live = live
        self._switches = switches
        self._known = RecordingSwitch(secret=secret)
        self._lock = asyncio.Lock()  # what was read before a change must not replace it

    @property
    def on(self) -> bool:
        return self._live.settings.record_on if self._known.on is None else self._known.on

    @property
    def changed(self) -> bool | None:
        """What was set at a running router; None if the settings decide."""
        return self._known.on

    @property
    def secret(self) -> bytes:
        own = self._live.settings.record_secret
        return self._known.secret if own is None else own.get_secret_value().encode()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.look()

    async def look(self) -> None:
        async with self._lock:
            await self._look()

    async def _look(self) -> None:
        was_on = self.on
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                self._known = await self._switches.read(otherwise=self._known)
        except (FleetError, TimeoutError):
            return  # the fleet view reports that Redis is away
        if self.on != was_on:
            logger.info("recording was switched", extra={"on": self.on})

    async def set(self, on: bool | None) -> None:
        """For all routers; None: as each one's settings say. Raises FleetError."""
        async with self._lock:
            await self._look()  # so that the secret stays
            switch = RecordingSwitch(on=on, secret=self._known.secret)
            await self._switches.put(switch)
            self._known = switch
