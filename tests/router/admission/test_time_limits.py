"""Waiting has a time limit, which the client may shorten; the replica gets the remaining time."""

from time import perf_counter

import pytest

from tests.router.admission.gate import Gate, ask, error, queued
from tests.router.world import completion, fleet, until


async def test_a_wait_that_is_too_long_ends_with_the_time_to_come_back(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", max_replica_requests=1, queue_timeout=0.2) as (router, [a]):
        a.answer = gate = Gate()
        first = ask(router, "first")
        await until(lambda: gate.inside, "the first at the replica")
        late = await router.post("/v1/completions", completion("late"))
        assert error(late) == (503, "queue_timeout")
        assert 1 <= int(late.headers["retry-after"]) <= 60
        for limit in ({"x-request-timeout": "0.05"}, {"x-request-timeout-ms": "50"}):
            dead = await router.post("/v1/completions", completion("dead"), **limit)
            assert error(dead) == (504, "deadline_exceeded")
        gate.let("first")
        assert (await first).status == 200
        assert gate.order == ["first"]


@pytest.mark.parametrize("limit", [{"x-request-timeout": "20"}, {"x-request-timeout-ms": "20000"}])
async def test_a_replica_gets_the_time_that_the_queue_left_of_a_request(
    valkey_url: str, limit: dict[str, str]
) -> None:
    async with fleet(valkey_url, "a", max_replica_requests=1) as (router, [a]):
        a.answer = gate = Gate()
        first = ask(router, "first", **limit)
        await until(lambda: gate.inside, "the first at the replica")
        second = ask(router, "second", **limit)
        await queued(router, 1)
        since = perf_counter()
        await until(lambda: perf_counter() - since > 0.1, "some waiting")
        waited_s = perf_counter() - since
        gate.let("first", "second")
        assert {(await one).status for one in (first, second)} == {200}
        told = [one.headers for one in a.received]
        assert not any("x-request-timeout" in headers for headers in told)
        at_once_ms, later_ms = (int(headers["x-request-timeout-ms"]) for headers in told)
        assert 10_000 < at_once_ms <= 20_000
        assert 10_000 < later_ms <= 20_000 - 1000 * waited_s


@pytest.mark.parametrize("header", ["x-request-timeout", "x-request-timeout-ms"])
@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "1e400"])
async def test_a_time_that_is_none_is_refused_though_nobody_waits(
    valkey_url: str, header: str, value: str
) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        wrong = await router.post("/v1/completions", completion("x"), **{header: value})
        assert wrong.status == 400
        assert wrong.json["error"]["param"] == header
        assert not a.received
