"""Liveness (/healthz), readiness (/readyz), models, metrics, cache flush, abort, server info."""

from typing import Any

import msgspec
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from pando_fleet.distribution import installed_version
from pando_worker.server.adapters import NamedAdapter
from pando_worker.server.errors import ApiError, unavailable
from pando_worker.server.front.json_bodies import JsonRoute
from pando_worker.server.machine import machine
from pando_worker.server.protocol.control import AbortRequest
from pando_worker.server.service import Service

_SECRET_SETTINGS = {"redis", "admin_token"}  # the URL of Redis may hold a password


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)
    engine = service.engine

    def model_card(adapter: NamedAdapter | None) -> dict[str, Any]:
        base = service.model
        card = {
            "id": adapter.name if adapter else base.name,
            "object": "model",
            "created": adapter.created if adapter else base.created,
            "owned_by": "pando",
            "max_model_len": engine.ready and engine.ready.max_request_tokens,
        }
        if adapter:
            card |= {"root": adapter.path, "parent": base.name}
        return card

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The base model, and the adapters, each with the base as its `parent`."""
        return {"object": "list", "data": [model_card(each) for each in (None, *service.adapters)]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return model_card(service.asked_model(name).adapter)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Liveness: fails once the scheduler process has exited, after which this one exits too."""
        if not engine.alive:
            raise unavailable("the scheduler process has exited", "engine_gone")
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Readiness: the model is loaded, the engine responds, and the worker is not draining."""
        service.check_ready()
        return {"status": "ready"}

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/server_info")
    @router.get("/get_server_info")
    async def server_info() -> dict[str, Any]:
        """The sizes and names that gateways ask SGLang for are at the top, under its names."""
        settings, ready = service.settings, engine.ready
        return {
            "version": installed_version(),
            "model": service.model.name,
            "served_model_name": service.model.name,
            "model_path": settings.model,
            "tp_size": settings.tensor_parallel_size,
            "dp_size": 1,
            "max_total_num_tokens": ready and ready.capacity_tokens,
            "max_running_requests": ready and ready.max_running_requests,
            "machine": machine(settings.device, settings.tensor_parallel_size),
            "settings": settings.model_dump(mode="json", exclude=_SECRET_SETTINGS),
            "engine": ready and msgspec.to_builtins(ready),
            "stats": engine.stats and msgspec.to_builtins(engine.stats),
            "draining": service.gate.draining,
            "stalled": engine.is_stalled,
        }

    @router.post("/flush_cache")
    async def flush_cache() -> Response:
        if not await engine.flush_cache():
            raise ApiError(
                409, "requests are running or waiting; the cache was not flushed", code="busy"
            )
        if service.hearing is not None:
            service.hearing.drafts.clear()
        return JSONResponse({"flushed": True})

    @router.post("/abort_request")
    async def abort_request(body: AbortRequest) -> dict[str, int]:
        """Abort all requests of that name, which end with finish "abort"; returns their number."""
        return {"aborted": engine.abort(body.rid)}

    return router
