"""Foreign engines that send no heartbeats: what the routers that probe them have to agree on.

Each router probes and sends heartbeats in the engine's place. Its incarnation must be the same in
all of them, or each router's heartbeat would throw away the tree of the others; and each sees only
its own share of the answers from which rates are learned. Both are kept here, in one small record.
"""

from dataclasses import dataclass
from typing import cast

from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import Agree, Ended
from pando_fleet.redis.scripts import Script


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was found in so many new samples."""

    value: float = 0.0
    samples: int = 0


NOTHING = Sampled()


@dataclass(frozen=True, slots=True)
class Agreed:
    """Rates in tokens/s, bytes of prompt a prompt token; 0.0 until anyone has measured."""

    incarnation: str
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    bytes_per_token: float


class UpstreamRecords:
    """Every method raises FleetUnavailable where Redis is away."""

    def __init__(self, redis: RedisClient) -> None:
        self._agree = Script(redis, Agree)
        self._ended = Script(redis, Ended)

    async def agree(
        self,
        pool: str,
        replica: str,
        identity: str,
        proposed: str,
        *,
        prefill: Sampled = NOTHING,
        decode: Sampled = NOTHING,
        bytes_per_token: Sampled = NOTHING,
    ) -> Agreed:
        """Adds what this router found, and says what holds for all of them.

        `identity` names what is served there, with other models it is another; `proposed` becomes
        the incarnation where there is none.
        """
        answer = await self._agree(
            Agree(
                record=PoolKeys(pool).upstream(replica),
                identity=identity,
                proposed=proposed,
                prefill=prefill.value,
                prefill_samples=prefill.samples,
                decode=decode.value,
                decode_samples=decode.samples,
                bytes_per_token=bytes_per_token.value,
                bytes_per_token_samples=bytes_per_token.samples,
            )
        )
        incarnation, *rates = cast(list[bytes], answer)
        return Agreed(incarnation.decode(), *map(float, rates))

    async def ended(self, pool: str, replica: str, incarnation: str) -> None:
        """Its process is gone, and its cache with it; the rates stay. No incarnation is whichever
        it is, for who never met it."""
        await self._ended(Ended(record=PoolKeys(pool).upstream(replica), incarnation=incarnation))
