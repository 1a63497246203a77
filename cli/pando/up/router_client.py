"""The requests of `pando up` and `pando demo` to the router: its health, and the replicas."""

import aiohttp
import msgspec

TIMEOUT = aiohttp.ClientTimeout(total=2)


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica in the router's /fleet, with only the fields that are needed here."""

    replica: str
    url: str
    model: str
    endpoints: tuple[str, ...]
    state: str
    stage: str  # what a starting one does; empty: unknown
    stage_done: float  # its share; 0: unknown
    running: int
    waiting: int
    capacity_tokens: int
    pinned_tokens: int
    cached_tokens: int
    hit_rate: float | None  # None before its first prompt


class FleetAnswer(msgspec.Struct, frozen=True):
    redis: str  # "up", "full", "read_only" or "away"
    pools: dict[str, list[ReplicaRow]]

    @property
    def replicas(self) -> list[ReplicaRow]:
        return [replica for pool in self.pools.values() for replica in pool]


class RouterClient:
    """Sends requests to one router. While it starts or restarts, there is no answer."""

    def __init__(self, url: str, key: str) -> None:
        """`key` is an admin's, in case the router requires one."""
        self.url = url
        self.headers = {"authorization": f"Bearer {key}"}
        self._http = aiohttp.ClientSession(timeout=TIMEOUT, headers=self.headers)

    async def close(self) -> None:
        await self._http.close()

    async def is_ok(self, path: str) -> bool:
        try:
            async with self._http.get(self.url + path) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def fleet(self) -> FleetAnswer | None:
        try:
            async with self._http.get(f"{self.url}/fleet") as answer:
                if answer.status != 200:
                    return None
                return msgspec.json.decode(await answer.read(), type=FleetAnswer)
        except (aiohttp.ClientError, TimeoutError):
            return None
