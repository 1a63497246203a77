"""What counts as a replica's failure, and the bounds of a request that meets one."""

import asyncio
import logging

import pytest
from aiohttp import web

from pando_router.core import breaker
from pando_router.data_path import reception
from tests.router.admission.gate import Gate, ask, error, no_lease_is_left, queued
from tests.router.data_path.test_resilience import retries, state_of
from tests.router.world import RouterClient, completion, fleet, never, status, until


async def failures(router: RouterClient, when: str) -> float:
    sample = f'pando_router_replica_failures_total{{pool="default",when="{when}"}}'
    return await router.metric(sample)


@pytest.fixture
def patient_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "FIRST_PAUSE_S", 60.0)  # no probe, even on a slow machine
    monkeypatch.setattr(breaker, "LONGEST_PAUSE_S", 60.0)


@pytest.fixture
def no_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "FAILURES", 1000)
    monkeypatch.setattr(breaker, "LEAST", 1000)


@pytest.mark.parametrize("policy", ["cache_aware", "session"])
@pytest.mark.usefixtures("patient_breaker")
async def test_a_replica_that_answers_500_to_everything_loses_its_traffic(
    valkey_url: str, policy: str
) -> None:
    async with fleet(valkey_url, "a", "b", policy=policy) as (router, [a, _]):
        a.answer = status(500)
        got = [
            (await router.post("/v1/completions", completion(f"{n} " * 100, user=f"u{n}"))).status
            for n in range(60)
        ]
        assert got.count(500) == len(a.received) == breaker.FAILURES
        assert got.count(200) == 60 - breaker.FAILURES
        assert await state_of(router, "a") == "open"
        assert await failures(router, "status") == breaker.FAILURES
        await no_lease_is_left(valkey_url)


async def test_a_replica_that_does_not_know_a_request_is_well(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = status(501)
        for _ in range(2 * breaker.FAILURES):
            assert (await router.post("/v1/completions", completion())).status == 501
        assert await state_of(router, "a") == "closed"
        assert await failures(router, "status") == 0


@pytest.mark.usefixtures("patient_breaker")
async def test_a_silent_replica_opens_its_breaker(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", first_byte_timeout=1.0) as (router, [a, _]):
        a.answer = never
        got = []
        for number in range(20):
            answer = await router.post("/v1/completions", completion(f"{number} " * 100))
            got.append(answer.status)
        assert got.count(504) == len(a.received) == breaker.FAILURES
        assert got.count(200) == 20 - breaker.FAILURES
        assert await state_of(router, "a") == "open"
        assert await failures(router, "before_first_byte") == breaker.FAILURES


async def test_requests_wait_for_connections_as_for_room_and_no_replica_is_blamed(
    valkey_url: str,
) -> None:
    async with fleet(valkey_url, "a", "b", max_replica_connections=2) as (router, [a, b]):
        gates = a.answer, b.answer = Gate(), Gate()
        names = [f"{number} " * 100 for number in range(40)]
        tasks = [ask(router, name) for name in names]
        await until(lambda: all(len(gate.inside) == 2 for gate in gates), "all connections used")
        await queued(router, 36)
        for gate in gates:
            gate.let(*names)
        assert {(await task).status for task in tasks} == {200}
        assert max(gate.most for gate in gates) == 2
        assert len(a.received) + len(b.received) == 40
        for replica in ("a", "b"):
            assert await state_of(router, replica) == "closed"
        assert await failures(router, "before_first_byte") == 0
        assert await retries(router, "connection") == 0
        assert await router.metric('pando_router_no_connection_total{pool="default"}') > 0
        await no_lease_is_left(valkey_url)


@pytest.mark.usefixtures("no_breaker")
async def test_tries_are_bounded_for_a_request_that_waits_in_between(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", max_replica_requests=1, max_tries=3) as (router, [a, b]):
        a.answer, b.answer = status(503), (gate := Gate())
        held = ask(router, "held " * 100)
        await until(lambda: gate.inside, "b being full")
        a.received.clear()  # it may have been the first to be asked
        answer = await router.post("/v1/completions", completion("other " * 100))
        assert error(answer) == (503, "replicas_failed")
        assert len(a.received) == 3
        gate.let("held " * 100)
        assert (await held).status == 200


@pytest.mark.usefixtures("no_breaker")
async def test_a_requests_deadline_is_one_however_often_it_waits(valkey_url: str) -> None:
    async def slowly(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return web.json_response({}, status=503)

    async with fleet(valkey_url, "a", "b", max_replica_requests=1, max_tries=16) as (
        router,
        [a, b],
    ):
        a.answer, b.answer = slowly, (gate := Gate())
        held = ask(router, "held " * 100)
        await until(lambda: gate.inside, "b being full")
        a.received.clear()
        body = completion("other " * 100)
        answer = await router.post("/v1/completions", body, **{"x-request-timeout": "0.5"})
        assert error(answer) == (504, "deadline_exceeded")
        assert 1 <= len(a.received) <= 5  # one before the first wait, then one each 0.2 s
        gate.let("held " * 100)
        assert (await held).status == 200


@pytest.mark.usefixtures("no_breaker")
async def test_a_429_is_not_forgotten_where_the_next_replica_fails(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b") as (router, [a, b]):
        a.answer, b.answer = status(429, **{"retry-after": "7"}), status(503)
        for number in range(100):
            answer = await router.post("/v1/completions", completion(f"{number} " * 100))
            assert (answer.status, answer.headers["retry-after"]) == (429, "7")
            if number >= 7 and await retries(router, "429"):
                break
        assert await retries(router, "429") >= 1  # for some the 429 was not the final answer


@pytest.mark.parametrize(
    ("path", "body", "form"),
    [
        ("/v1/completions", completion(), {"error"}),
        (
            "/v1/messages",
            {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]},
            {"type", "error", "request_id"},
        ),
    ],
)
async def test_an_unforeseen_error_is_answered_counted_and_logged_as_any_other(
    valkey_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    body: object,
    form: set[str],
) -> None:
    def resolve(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(reception, "resolve", resolve)
    caplog.set_level(logging.INFO, "pando.router")
    async with fleet(valkey_url, "a", access_log_sample=0) as (router, _):
        answer = await router.post(path, body, **{"x-request-id": "mine"})
        assert (answer.status, answer.headers["x-request-id"]) == (500, "mine")
        assert answer.json.keys() == form
        sample = f'pando_router_requests_total{{path="{path}",status="500"}}'
        assert await router.metric(sample) == 1
    (line,) = [vars(record) for record in caplog.records if record.message == "request"]
    assert (line["status"], line["request_id"]) == (500, "mine")
    (cause,) = [record for record in caplog.records if record.message == "a request failed"]
    assert cause.exc_info
