"""Messages that could fill a log are written once, then counted."""

import asyncio
import logging
from typing import Any

import pytest

from pando_router.telemetry.bounded_log import BoundedLog
from tests.router.world import completion, fleet, until


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.message == message]


async def test_the_first_line_comes_at_once_and_the_rest_as_one_that_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pando.router")
    log = BoundedLog("it failed", every_s=0.05)
    for number in range(5):
        log("a", error=f"error {number}")
    log("b", error="another")
    assert [(line["error"], line.get("times")) for line in lines(caplog, "it failed")] == [
        ("error 0", None),
        ("another", None),
    ]
    await until(lambda: len(lines(caplog, "it failed")) == 3, "the rest is counted")
    last = lines(caplog, "it failed")[-1]
    assert (last["error"], last["times"], last["in_s"]) == ("error 4", 4, 0.05)
    await asyncio.sleep(0.12)  # two periods without a message
    assert len(lines(caplog, "it failed")) == 3
    log("a", error="again")
    assert lines(caplog, "it failed")[-1]["error"] == "again"


async def test_a_dead_replica_writes_one_line_however_many_requests_meet_it(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(valkey_url, "a", retry_share=1.0) as (router, [a]):
        await a.refuse()
        answers = [await router.post("/v1/completions", completion()) for _ in range(20)]
        assert {answer.status for answer in answers} == {503}
        assert await router.metric(
            'pando_router_replica_failures_total{pool="default",when="before_first_byte"}'
        ) == len(answers)
    (line,) = lines(caplog, "replica failed")
    assert line["replica"] == "a"
