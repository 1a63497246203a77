"""What other routers, gateways and load tools ask of an engine, by the paths that SGLang and vLLM
have for it. `/readyz`, `/server_info` and `/metrics` say more.
"""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from msgspec import structs
from starlette.responses import Response

from pando_fleet.distribution import installed_version
from pando_worker.messages import Embed, Generate, SamplingParams
from pando_worker.server.errors import unavailable
from pando_worker.server.pooling import Embeddings, NoEmbeddings
from pando_worker.server.service import Service
from pando_worker.server.source_text import source_of
from pando_worker.stats import Stats

HEALTH_GENERATE_S = 20.0
"""Time within which `/health_generate` needs its token; SGLang's default."""


def routes(service: Service) -> APIRouter:
    router = APIRouter()
    model = service.model
    one_at_a_time = asyncio.Lock()

    @router.get("/health")
    @router.get("/ping")
    @router.post("/ping")
    async def health() -> Response:
        """200 with an empty body if /readyz is 200, else 503."""
        service.check_ready()
        return Response()

    @router.get("/health_generate")
    async def health_generate(request: Request) -> Response:
        """Like /health, once the model has generated a token, or embedded one if it has no head."""
        service.check_ready()
        try:
            async with asyncio.timeout(HEALTH_GENERATE_S), one_at_a_time:
                await _run_one_token(service, request.state.request_id)
        except TimeoutError:
            raise unavailable(
                f"no token was generated within {HEALTH_GENERATE_S:g} s", "engine_slow"
            ) from None
        return Response()

    @router.get("/version")
    async def version() -> dict[str, str | None]:
        return {"version": installed_version()}

    @router.get("/load")
    async def load() -> dict[str, int]:
        """Requests in this server, running and waiting; in vLLM's form."""
        return {"server_load": service.gate.in_flight}

    @router.get("/get_load")
    async def get_load() -> list[dict[str, int]]:
        """The scheduler's load, in SGLang's form."""
        stats = service.engine.stats or Stats()
        load = {
            "dp_rank": 0,
            "num_reqs": stats.running + stats.waiting,
            "num_waiting_reqs": stats.waiting,
            "num_tokens": stats.pinned_tokens + stats.waiting_tokens,
        }
        return [load]

    @router.get("/get_model_info")
    @router.get("/model_info")
    async def model_info() -> dict[str, Any]:
        """In SGLang's form."""
        return {
            "model_path": service.settings.model,
            "tokenizer_path": service.settings.model,
            "served_model_name": model.name,
            "is_generation": model.has_head,
            "has_image_understanding": service.sight is not None,
            "preferred_sampling_params": None,
            "vocab_size": model.vocab_size,
        }

    return router


async def _run_one_token(service: Service, rid: str) -> None:
    """Raises ApiError if the scheduler rejects or fails it."""
    engine, pooling = service.engine, service.model.pooling
    sampling = SamplingParams(max_new_tokens=1, temperature=0.0)
    order = Generate(rid=rid, input_ids=[0], sampling=sampling)
    if service.hearing is not None:
        # Imported here for numpy's sake, as in `speech`.
        from pando_worker.server.speech.windows import silence

        order = structs.replace(order, source=silence(service.hearing))
    if service.model.source is not None:
        order = structs.replace(order, source=source_of([0]))
    if (classifier := service.model.classifier) is not None:
        pooling = Embeddings(classifier.pooling, is_normalized=False)
    if not service.model.has_head and not isinstance(pooling, NoEmbeddings):
        await engine.embed(Embed(rid=rid, input_ids=[0], pooling=pooling.pooling))
        return
    with engine.call([order]) as call:
        async for _ in call.outputs():
            pass
