"""Foreign engines without heartbeats: what the routers that probe them must agree on.

Each router probes and sends heartbeats for the engine. All must use the same incarnation, or each
router's heartbeat would discard the tree of the others; and each sees only its own share of the
answers from which rates are learned. Both are kept here, in one small record.
"""

from dataclasses import dataclass
from typing import cast

from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import Agree, Ended
from pando_fleet.redis.scripts import Script


@dataclass(frozen=True, slots=True)
class Sampled:
    """A value and the number of new samples behind it."""

    value: float = 0.0
    samples: int = 0


NOTHING = Sampled()


@dataclass(frozen=True, slots=True)
class Agreed:
    """Rates in tokens/s, prompt bytes per prompt token; 0.0 before any measurement."""

    incarnation: str
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    bytes_per_token: float


class UpstreamRecords:
    """Every method raises FleetUnavailable if Redis is away."""

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
        """Adds this router's measurements, and returns the values that hold for all routers.

        `identity` names what is served there, so it changes with the models; `proposed` becomes the
        incarnation if there is none.
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
        """Its process and its cache are gone; the rates stay. An empty incarnation matches any, for
        a caller that never knew it."""
        await self._ended(Ended(record=PoolKeys(pool).upstream(replica), incarnation=incarnation))
