"""One trace from the client through the router to the worker, of real processes."""

import signal

import aiohttp
import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.router.telemetry.otlp_receiver import OtlpReceiver, SpanSeen

pytestmark = pytest.mark.e2e


def within(inner: SpanSeen, outer: SpanSeen) -> bool:
    return outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


async def test_router_and_worker_spans_are_one_trace() -> None:
    with OtlpReceiver() as collector:
        environment = {
            "PANDO_ROUTER_OTLP_ENDPOINT": collector.url,
            "PANDO_WORKER_OTLP_ENDPOINT": collector.url,
        }
        with UpProcess("--workers", "1", environment=environment) as up:
            up.wait_ready()
            body = {"model": MODEL, "prompt": "Xyzzy says:", "max_tokens": 20, "stream": True}
            async with aiohttp.ClientSession() as session:
                answer = await session.post(
                    f"{up.url}/v1/completions", json=body | {"ignore_eos": True}
                )
                text = await answer.text()
            assert answer.status == 200, text
            up.send(signal.SIGINT)
            assert up.wait_end() == 0, up.output
        (root,) = collector.named("POST /v1/completions")
        (tried,) = collector.named("replica")
        (served,) = collector.named("POST /v1/completions", "pando-worker")
        assert tried.parent_id == root.span_id
        assert served.parent_id == tried.span_id
        assert "first token" in served.events
        parts = [collector.named(n, "pando-worker")[0] for n in ("queue", "prefill", "decode")]
        queue, prefill, decode = parts
        assert all(part.parent_id == served.span_id and within(part, served) for part in parts)
        assert queue.end_ns == prefill.start_ns
        assert prefill.end_ns == decode.start_ns
        assert decode.attributes["pando.output_tokens"] == 20
        assert {span.trace_id for span in (root, tried, served, *parts)} == {root.trace_id}
        assert b"Xyzzy" not in collector.raw
