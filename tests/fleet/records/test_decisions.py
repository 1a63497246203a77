"""Scaling decisions as routers read them: the last ones of each pool, until its removal."""

from pando_fleet.records.decisions import KEPT, PastDecision, PastDecisions
from pando_fleet.redis.client import connect
from pando_fleet.redis.keys import DECISIONS


def decision(number: int) -> PastDecision:
    return PastDecision(at_s=float(number), before=number, after=number + 1, reason="load")


async def test_the_last_decisions_of_a_pool_are_kept_until_it_goes(redis_url: str) -> None:
    redis = connect(redis_url)
    decisions = PastDecisions(redis)
    many = [decision(number) for number in range(KEPT + 5)]
    await decisions.put("a", many)
    await decisions.put("b", [])
    assert await decisions.read() == {"a": tuple(many[:KEPT]), "b": ()}
    await decisions.remove("a")
    assert await decisions.read() == {"b": ()}
    await redis.aclose()


async def test_a_row_of_another_version_hides_no_other(redis_url: str) -> None:
    redis = connect(redis_url)
    decisions = PastDecisions(redis)
    await decisions.put("a", [decision(1)])
    await redis.hset(DECISIONS, "b", '[{"when": 1}]')
    await redis.hset(DECISIONS, "c", "{")
    assert await decisions.read() == {"a": (decision(1),)}
    await redis.aclose()
