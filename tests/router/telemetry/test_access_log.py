"""Which requests get a line in the log, and its content."""

import logging
import random
from dataclasses import dataclass
from typing import Any

import pytest

from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.listeners.access_log import AccessLog
from tests.router.world import Stream, cached, completion, fleet, status, until


@dataclass(frozen=True, slots=True)
class Line:
    status: int = 200
    lost: str = ""


def log(**settings: Any) -> AccessLog:
    return AccessLog(Live(RouterSettings(**settings)), random.Random(1))


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.message == "request"]


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pando.router")


def test_share_of_the_requests_is_logged() -> None:
    found = log(access_log_sample=0.25)
    share = sum(found.wants(Line(), 0.1) for _ in range(10_000)) / 10_000
    assert share == pytest.approx(0.25, abs=0.02)


def test_failed_lost_and_slow_requests_are_always_logged() -> None:
    none = log(access_log_sample=0, access_log_slow_seconds=2.0)
    assert not none.wants(Line(), 1.9)
    assert not none.wants(Line(status=404), 1.9)  # anyone can cause these at will
    assert none.wants(Line(), 2.0)
    assert none.wants(Line(status=502), 0.1)
    assert none.wants(Line(lost="replica 'a' was lost"), 0.1)


def test_nothing_is_logged_below_the_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pando.router")
    assert not log(access_log_sample=1).wants(Line(status=500), 100.0)


async def test_line_has_what_became_of_the_request_and_none_of_its_text(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(valkey_url, "a", access_log_sample=1) as (router, [a]):
        a.answer = cached(2, 4)
        answer = await router.post("/v1/completions", completion("hush"))
        (line,) = lines(caplog)
        assert line["request_id"] == answer.headers["x-request-id"]
        assert (line["path"], line["status"], line["replica"]) == ("/v1/completions", 200, "a")
        assert (line["cached_tokens"], line["tries"]) == (2, 1)
        assert 0 < line["ttfb_s"] <= line["duration_s"]
        assert "hush" not in str(line)


async def test_without_a_sample_only_what_failed_is_in_the_log(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(valkey_url, "a", access_log_sample=0) as (router, [a]):
        assert (await router.post("/v1/completions", completion())).status == 200
        assert (await router.post("/v1/completions", b"{")).status == 400
        assert not lines(caplog)
        a.answer = stream = Stream()
        stream.put(b"data: 1\n\n")
        stream.die()
        await router.post("/v1/completions", completion(stream=True))
        await until(lambda: lines(caplog), "a line of the lost stream")
        a.answer = status(500)
        assert (await router.post("/v1/completions", completion())).status == 500
        assert [line["status"] for line in lines(caplog)] == [200, 500]
