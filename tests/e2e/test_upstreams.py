"""A real engine that sends no heartbeats: Pando's own worker without Redis, behind a router."""

import itertools

import pytest

from pando_fleet.redis.client import connect
from pando_fleet.registry.registry import Registry
from tests.router.world import serving, until
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess

pytestmark = pytest.mark.e2e

AS_JSON = {"content-type": "application/json"}


async def test_a_worker_without_redis_is_probed_placed_on_and_learned_from(
    valkey_url: str,
) -> None:
    with WorkerProcess.start(stand_in=False) as worker:
        async with serving(valkey_url, upstream=worker.url, upstream_interval=0.1) as router:
            name = worker.url.removeprefix("http://")
            await router.ready(name)

            def asked(code: str) -> dict[str, object]:
                prompt = f"{code}. " * 20
                return {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 12, "stream": True}

            delivered = 'pando_router_delivered_cached_tokens_total{pool="default"}'
            matched = cached = 0
            counted = 0.0

            async def is_matched() -> bool:  # a prompt is known again once its replica keeps it
                nonlocal matched, cached, counted
                before = await router.metric(delivered)
                body = asked("def add(a, b): return a + b")
                answer = await router.post("/v1/completions", body, **AS_JSON)
                assert (answer.status, answer.replica) == (200, name), answer.body
                matched = int(answer.headers["x-pando-matched-tokens"])
                cached = int(answer.headers["x-pando-cached-tokens"])
                counted = await router.metric(delivered) - before
                return matched > 0

            await until(is_matched, "the prompt is known")
            assert cached >= matched - 64  # a chunk
            assert counted == cached, "counted once, though reported twice"
            redis = connect(valkey_url)
            names = itertools.count()
            try:

                async def is_learned() -> bool:
                    # Only an answer that computed much of its prompt gives a rate, and a busy
                    # machine's first answer may have arrived in one piece.
                    body = asked(f"def f{next(names)}(a, b): return a - b")
                    await router.post("/v1/completions", body, **AS_JSON)
                    (replica,) = await Registry(redis).replicas("default")
                    return replica.beat.prefill_tokens_per_s > 0

                await until(is_learned, "a prefill rate")
            finally:
                await redis.aclose()
