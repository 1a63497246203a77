"""Whether this router lives, is ready and is well, for probes, load tools and Prometheus."""

from collections.abc import Callable, Collection
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from pando_fleet.distribution import version
from pando_router.fleet_view.view import FleetView
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import Metrics


def health_routes(
    view: FleetView,
    lifecycle: Lifecycle,
    metrics: Metrics,
    *,
    ended: Callable[[], str],
    redis_advice: Callable[[], Collection[str]],
) -> APIRouter:
    """
    Args:
        ended: the name of background work that has ended unexpectedly, so that the router needs a
            restart; empty if there is none.
        redis_advice: what to change in Redis's configuration.
    """
    router = APIRouter()

    @router.get("/healthz", responses={500: {"description": "this router needs a restart"}})
    async def healthz() -> JSONResponse:
        if work := ended():
            return JSONResponse({"status": f"{work} has ended", **view.redis.row}, 500)
        advice = {"redis_advice": list(redis_advice())} if redis_advice() else {}
        return JSONResponse({"status": "ok", **view.redis.row, **advice})

    @router.get("/readyz", responses={503: {"description": "send new requests elsewhere"}})
    async def readyz(exclude: Literal["", "fleet"] = "") -> JSONResponse:
        """With `?exclude=fleet`, replicas are not considered. Kubernetes probes ask like that:
        without replicas, a router must stay reachable to report that they are missing."""
        if lifecycle.leaving:
            return JSONResponse({"status": "draining"}, 503)
        if exclude and not view.is_known and not view.fleet.ready:
            return JSONResponse({"status": "Redis has not answered yet"}, 503)
        if not exclude and not view.fleet.ready:
            return JSONResponse({"status": "no replica is ready"}, 503)
        return JSONResponse({"status": "ready"})

    @router.get("/health", responses={503: {"description": "not ready, as /readyz says"}})
    async def health() -> JSONResponse:
        """/readyz, under the name that load tools and other routers ask for."""
        return await readyz()

    @router.get("/version")
    async def running_version() -> dict[str, str]:
        return {"version": version()}

    @router.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return router
