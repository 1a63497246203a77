"""How many requests and tokens a minute a tenant may take, counted for all routers together.

`RateLimits.take` asks for one request and the tokens that it is expected to need, in one call;
`settle` corrects the tokens by what it has needed. Both limits are token buckets that hold a
minute's worth, kept as GCRA does (ITU-T I.371): `lua/limit_ops.lua` says how. Time is Redis's own.

Neither call is free of effect when it runs twice, which happens where a connection breaks between
the call and its answer: the bucket then lacks what was taken twice until it has filled again.
"""

from dataclasses import dataclass

from pando_fleet.redis.layout.calls import SettleLimit, TakeLimit
from pando_fleet.redis.scripts import Clock, time_arg
from pando_fleet.redis.wire import Wire, WireScript


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may take in a minute; 0 is no limit."""

    requests: int = 0
    tokens: int = 0

    def __bool__(self) -> bool:
        return self.requests > 0 or self.tokens > 0


@dataclass(frozen=True, slots=True)
class Level:
    """A bucket after a call."""

    left: int  # requests or tokens
    full_ms: int  # until all of it is there again
    wait_ms: int  # until what was asked for is there; 0 where it was


@dataclass(frozen=True, slots=True)
class Taken:
    requests: Level
    tokens: Level

    @property
    def wait_ms(self) -> int:
        """0 where the request may run; otherwise nothing was taken, and this is how long to wait
        if nobody else asks."""
        return max(self.requests.wait_ms, self.tokens.wait_ms)


class RateLimits:
    def __init__(self, wire: Wire, clock: Clock | None = None) -> None:
        self._clock = clock
        self._take = WireScript(wire, TakeLimit)
        self._settle = WireScript(wire, SettleLimit)

    async def take(self, tenant: str, limits: Limits, tokens: int) -> Taken:
        """One request and `tokens`, both or neither; more tokens than `limits` has in a minute ask
        for a full bucket, and the rest is a matter of `settle`.

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
        """Takes `tokens` more, whether they are there or not; gives back negative ones.

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
