"""The load generator's measurements of a server with known timings."""

import time

import pytest

from bench.fleet.serving.arrivals import constant
from bench.fleet.serving.calibration import CalibrationError, calibrate
from bench.fleet.serving.client import API, Client, Endpoint
from bench.fleet.serving.load import closed_loop, open_loop, run_session
from bench.fleet.serving.statistics import summarize
from bench.fleet.serving.workloads import Session, Turn
from tests.bench.timed_server import Clock, Plan, TimedServer, timed_server
from tests.waiting import PATIENCE_S


def client_of(server: TimedServer, api: API = "chat", timeout_s: float = PATIENCE_S) -> Client:
    endpoint = Endpoint(server.url, "timed", api)
    return Client(endpoint, timeout_s, server.clock or time.perf_counter)


def one_turn(max_tokens: int) -> Session:
    return Session((Turn("two words", max_tokens),))


@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_times_of_every_token_are_those_of_the_server(api: API) -> None:
    plan = Plan(first_s=0.3, gap_s=0.1, cached_tokens=3)
    async with timed_server(plan, Clock()) as server:
        client = client_of(server, api)
        record = await client.send([("user", "one two three")], 5)
        await client.close()
    assert record.error is None
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (
        13 if api == "chat" else 6,
        5,
        3,
    )
    assert record.finish_reason == "length"
    assert record.text == "a a a a a "
    assert record.chunks == server.written[0]
    assert record.ttft == pytest.approx(0.3)
    assert record.tpot == pytest.approx(0.1)
    assert record.end_to_end == pytest.approx(0.7)


async def test_report_of_a_run_has_the_servers_throughput_and_latencies() -> None:
    plan = Plan(first_s=0.1, gap_s=0.05, together=4, cached_tokens=4)
    async with timed_server(plan, Clock()) as server:
        client = client_of(server)
        records = await closed_loop(client, iter([one_turn(6)] * 8), users=4, limit=8)
        await client.close()
        assert server.most_running == 4
    report = summarize(records)
    assert report.requests == report.succeeded == 8
    assert not report.errors
    # Two rounds of four; a round takes 100 + 5 * 50 ms.
    assert report.seconds == pytest.approx(0.7)
    assert report.output_tokens_per_s == pytest.approx(48 / 0.7)
    assert report.requests_per_s == pytest.approx(8 / 0.7)
    assert report.cached_share == pytest.approx(4 / 11)
    assert report.ttft is not None and report.ttft.p50 == pytest.approx(0.1)
    assert report.itl is not None and report.itl.count == 40
    assert report.itl.max == pytest.approx(0.05)


async def test_open_loop_sends_when_due_whether_or_not_answers_came() -> None:
    async with timed_server(Plan(together=10)) as server:  # the first answer waits for all requests
        client = client_of(server)
        records = await open_loop(client, iter([one_turn(1)] * 10), constant(100), limit=10)
        await client.close()
    assert not any(record.error for record in records)
    due = [record.due - records[0].due for record in records]
    assert due == pytest.approx([i / 100 for i in range(10)])
    assert all(record.sent >= record.due for record in records)


async def test_the_next_turn_carries_the_answer_to_the_last() -> None:
    async with timed_server() as server:
        client = client_of(server)
        session = Session((Turn("first", 2), Turn("second", 1)), system="be kind")
        records = await run_session(client, session, None)
        await client.close()
    assert [m["content"] for m in server.bodies[1]["messages"]] == [
        "be kind",
        "first",
        "a a ",
        "second",
    ]
    assert len(records) == 2


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        (Plan(status=503), "HTTP 503"),
        (Plan(error_after=2), "error in the stream"),
        (Plan(cut_after=2), "broken connection"),
        (Plan(usage=False), "no usage in the stream"),
        (Plan(silent=True), "timeout"),
    ],
)
async def test_every_failure_is_counted_by_its_kind(plan: Plan, kind: str) -> None:
    async with timed_server(plan) as server:
        client = client_of(server, timeout_s=0.2 if plan.silent else PATIENCE_S)
        records = await closed_loop(client, iter([one_turn(4)] * 3), users=3, limit=3)
        await client.close()
    report = summarize(records)
    assert report.errors == {kind: 3}
    assert (report.succeeded, report.ttft) == (0, None)


async def test_a_server_that_is_not_there_is_no_connection() -> None:
    async with timed_server() as server:
        client = client_of(server)
    record = await client.send([("user", "hello")], 4)
    await client.close()
    assert record.error == "no connection"


async def test_calibration_learns_what_the_endpoint_counts_for_a_word() -> None:
    async with timed_server() as server:
        client = client_of(server)
        maker = await calibrate(client)
        record = await client.send([("user", maker.text(101 - maker.overhead_tokens, "x"))], 1)
        await client.close()
    assert (maker.tokens_per_word, maker.overhead_tokens) == (2, 7)
    assert record.prompt_tokens == 101


async def test_an_endpoint_that_does_not_count_cannot_be_calibrated() -> None:
    async with timed_server(Plan(prompt_tokens=7)) as server:
        client = client_of(server)
        with pytest.raises(CalibrationError, match="counts 7 tokens for 40 words, 7 for 400"):
            await calibrate(client)
        await client.close()


async def test_calibration_says_why_it_failed() -> None:
    async with timed_server(Plan(status=401)) as server:
        client = client_of(server)
        with pytest.raises(CalibrationError, match="HTTP 401"):
            await calibrate(client)
        await client.close()
