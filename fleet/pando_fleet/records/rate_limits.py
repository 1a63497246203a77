"""Rate limits: how many requests and tokens a minute a tenant may take, counted over all routers.

`RateLimits.take` takes one request and the tokens that it is expected to need, in one call;
`settle` corrects the tokens by the actual use. Both limits are token buckets that hold a minute's
worth, stored as in GCRA (ITU-T I.371); the other half, `lua/records/limit_take.lua`
and `lua/records/limit_settle.lua`, computes them in Redis, by Redis's own time.

Neither call is idempotent. If a connection breaks between a call and its answer, it runs twice, and
the bucket lacks the extra amount until it has filled again.
"""

from dataclasses import dataclass

from pando_fleet.records.limits import Limits
from pando_fleet.redis.layout.calls import SettleLimit, TakeLimit
from pando_fleet.redis.scripts import Clock, time_arg
from pando_fleet.redis.wire import Wire, WireScript


@dataclass(frozen=True, slots=True)
class Level:
    """A bucket after a call."""

    left: int  # requests or tokens
    full_ms: int  # until it is full again
    wait_ms: int  # until the requested amount is available; 0 if it was


@dataclass(frozen=True, slots=True)
class Taken:
    requests: Level
    tokens: Level

    @property
    def wait_ms(self) -> int:
        """0 if the request may run; otherwise nothing was taken, and this is the time to wait if
        nobody else takes anything."""
        return max(self.requests.wait_ms, self.tokens.wait_ms)


class RateLimits:
    def __init__(self, wire: Wire, clock: Clock | None = None) -> None:
        self._clock = clock
        self._take = WireScript(wire, TakeLimit)
        self._settle = WireScript(wire, SettleLimit)

    async def take(self, tenant: str, limits: Limits, tokens: int) -> Taken:
        """Takes one request and `tokens`, both or neither. More tokens than `limits` has per minute
        take a full bucket, and `settle` takes the rest.

        Raises FleetUnavailable, FleetError.
        """
        levels = await self._take(
            TakeLimit(
                buckets=_key(tenant),
                now=time_arg(self._clock),
                request_limit=limits.requests,
                token_limit=limits.tokens,
                tokens=tokens,
            )
        )
        return Taken(Level(*levels[:3]), Level(*levels[3:]))

    async def settle(self, tenant: str, limits: Limits, tokens: int) -> None:
        """Takes `tokens` more, available or not; negative ones are given back.

        Raises FleetUnavailable, FleetError.
        """
        if limits.tokens:
            await self._settle(
                SettleLimit(
                    buckets=_key(tenant),
                    now=time_arg(self._clock),
                    token_limit=limits.tokens,
                    tokens=tokens,
                )
            )


def _key(tenant: str) -> str:
    return f"pando:limits:{tenant}"
