"""Traces as a real collector receives them."""

import socket
from time import monotonic

import pytest
from pydantic import ValidationError

from pando_fleet import traces
from pando_router.configuration.settings import RouterSettings
from tests.router.telemetry.otlp_receiver import OtlpReceiver
from tests.router.world import chat, completion, fleet, status

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


async def test_request_is_a_span_under_its_clients_and_over_its_replicas(valkey_url: str) -> None:
    with OtlpReceiver() as collector:
        async with fleet(valkey_url, "a", otlp_endpoint=collector.url) as (router, [a]):
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-request-id": "r1"}
            answer = await router.post("/v1/completions", completion("hush"), **headers)
            assert answer.status == 200
        (root,) = collector.named("POST /v1/completions")
        assert (root.trace_id, root.parent_id) == (TRACE, SPAN)
        assert root.attributes["http.response.status_code"] == 200
        assert root.attributes["pando.request_id"] == "r1"
        (placement,), (tried,) = collector.named("placement"), collector.named("replica")
        assert placement.parent_id == tried.parent_id == root.span_id
        assert placement.attributes["pando.replica"] == "a"
        assert root.start_ns <= placement.start_ns <= placement.end_ns <= tried.start_ns
        assert tried.end_ns <= root.end_ns
        assert "first byte" in tried.events
        assert a.received[0].headers["traceparent"] == f"00-{TRACE}-{tried.span_id}-01"
        assert b"hush" not in collector.raw


async def test_each_try_and_the_wait_for_a_place_have_spans(valkey_url: str) -> None:
    with OtlpReceiver() as collector:
        async with fleet(valkey_url, "a", "b", otlp_endpoint=collector.url, queue_timeout=0.2) as (
            router,
            [a, b],
        ):
            a.answer = b.answer = status(503)
            assert (await router.post("/v1/chat/completions", chat("hi"))).status == 503
        (root,) = collector.named("POST /v1/chat/completions")
        tries = collector.named("replica")
        assert root.failed
        assert {one.attributes["pando.replica"] for one in tries} == {"a", "b"}
        assert all(one.failed and one.parent_id == root.span_id for one in tries)


@pytest.mark.parametrize(("flags", "spans"), [("00", 0), ("01", 1)])
async def test_the_client_decides_whether_its_trace_is_kept(
    valkey_url: str, flags: str, spans: int
) -> None:
    with OtlpReceiver() as collector:
        async with fleet(valkey_url, "a", otlp_endpoint=collector.url, trace_sample=0.0) as (
            router,
            [a],
        ):
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-{flags}"}
            await router.post("/v1/completions", completion(), **headers)
            await router.post("/v1/completions", completion())  # begins here: none are kept
            said = a.received[0].headers["traceparent"]
            assert said.startswith(f"00-{TRACE}-")
            assert said.endswith(f"-{flags}")
        assert len(collector.named("POST /v1/completions")) == spans


async def test_requests_are_served_while_the_collector_is_away(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", otlp_endpoint="http://127.0.0.1:9") as (router, _):
        assert (await router.post("/v1/completions", completion())).status == 200


async def test_a_collector_that_hangs_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traces, "SEND_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tracing = traces.Tracing.to(url, 1.0, "test", "test")
        assert tracing is not None
        for _ in range(2000):  # four batches, two seconds each
            tracing.request("work", [], "r").finish("work", 200)
        started = monotonic()
        await tracing.close()
        assert 1.9 < monotonic() - started < 7


async def test_without_traces_a_traceparent_goes_on_as_it_came(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        sent = f"00-{TRACE}-{SPAN}-01"
        await router.post("/v1/completions", completion(), traceparent=sent)
        assert a.received[0].headers["traceparent"] == sent


def test_an_endpoint_without_the_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pando_fleet.traces.find_spec", lambda name: None)
    with pytest.raises(ValidationError, match=r"pip install '\.\[otel\]'"):
        RouterSettings(otlp_endpoint="http://collector:4318")
