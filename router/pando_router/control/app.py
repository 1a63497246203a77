"""Health, metrics, the fleet, models and explanations: all endpoints but the data path."""

from collections.abc import Callable, Collection, Iterable
from functools import cache, partial
from time import time
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.routing import Route

from pando_fleet.distribution import version
from pando_fleet.redis.client import FleetError
from pando_router.chat.routes import CHAT_PATH
from pando_router.configuration.live import Live
from pando_router.control.openapi import describe
from pando_router.dashboard.routes import PAGE_PATH
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.chat import CHAT
from pando_router.errors import ApiError, bad_request, unavailable
from pando_router.explaining.explain import Explanation, explain, explain_past
from pando_router.explaining.recent import Recent
from pando_router.fleet_view.decisions import DecisionsView
from pando_router.fleet_view.models import Card, Models
from pando_router.fleet_view.snapshot import Member
from pando_router.fleet_view.view import FleetView
from pando_router.parsing.body_reader import BodyReader
from pando_router.placing.dispatch import Dispatcher
from pando_router.placing.pool_policies import PoolPolicies
from pando_router.placing.route import resolve
from pando_router.placing.steering import Steerer
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import Metrics
from pando_router.tenants.guard import ROOT_PATH, tenant_of


def create_control(
    live: Live,
    view: FleetView,
    dispatcher: Dispatcher,
    policies: PoolPolicies,
    recent: Recent,
    replica_row: Callable[[Member], dict[str, Any]],
    lifecycle: Lifecycle,
    metrics: Metrics,
    queue_lengths: Callable[[], dict[str, int]],
    pages: Iterable[APIRouter],
    decisions: DecisionsView,
    reader: BodyReader,
    ended: Callable[[], str],
    redis_advice: Callable[[], Collection[str]],
) -> FastAPI:
    """
    Args:
        ended: the name of background work that has ended unexpectedly, so that the router needs a
            restart; empty if there is none.
        redis_advice: what to change in Redis's configuration.
    """
    app = FastAPI(title="Pando router", version=version(), openapi_url=None)
    for page in pages:
        app.include_router(page)
    started = int(time())

    def names(request: Request) -> Models:
        return Models(view.fleet, live.settings.aliases, tenant_of(request.scope))

    @app.get(ROOT_PATH, include_in_schema=False)
    async def root(request: Request) -> Response:
        """A page for people, and for programs the paths that there are."""
        pages = {"dashboard": PAGE_PATH}
        if live.settings.chat_page:
            pages = {"chat": CHAT_PATH, **pages}
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(next(iter(pages.values())), 303)
        others = {"models": "/v1/models", "openapi": "/openapi.json", "health": "/healthz"}
        return JSONResponse({"name": app.title, "version": app.version, **others, **pages})

    @app.get("/healthz", responses={500: {"description": "this router needs a restart"}})
    async def healthz() -> JSONResponse:
        if work := ended():
            return JSONResponse({"status": f"{work} has ended", **view.redis.row}, 500)
        advice = {"redis_advice": list(redis_advice())} if redis_advice() else {}
        return JSONResponse({"status": "ok", **view.redis.row, **advice})

    @app.get("/readyz", responses={503: {"description": "send new requests elsewhere"}})
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

    @app.get("/health", responses={503: {"description": "not ready, as /readyz says"}})
    async def health() -> JSONResponse:
        """/readyz, under the name that load tools and other routers ask for."""
        return await readyz()

    @app.get("/version")
    async def running_version() -> dict[str, str]:
        return {"version": app.version}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/fleet")
    async def fleet() -> dict[str, Any]:
        pools = {
            pool: [replica_row(member) for member in members]
            for pool, members in view.fleet.pools.items()
        }
        return {
            **view.redis.row,
            "pools": pools,
            "queues": queue_lengths(),  # of this router only
            "decisions": await decisions.rows(),  # of the operator, newest first
        }

    @app.post("/route/explain")
    async def route_explain(request: Request, path: str = CHAT.paths[0]) -> Explanation:
        if (endpoint := ENDPOINTS.get(path)) is None:
            raise ApiError(400, f"path must be one of {', '.join(ENDPOINTS)}", param="path")
        body, content_type = await request.body(), endpoint.content_type(request.headers.raw)
        asked = await reader.parsed(endpoint, body, content_type)
        if live.settings.drop_volatile_lines and (found := asked.without_volatile_line()):
            asked, _ = found
        prompt = resolve(
            asked,
            names(request),
            path,
            Steerer(live.settings)(request.headers.raw, admin=True),
            tenant_of(request.scope),
        )
        try:
            return await explain(dispatcher, policies, prompt, view.is_up)
        except FleetError as error:
            raise unavailable(str(error), "redis_away") from error

    @app.get("/route/explain")
    async def route_explain_past(request_id: str = "") -> dict[str, Any]:
        tries = [explain_past(past) for past in recent.of(request_id)]
        if not tries:
            others, settings = "", live.settings
            if settings.processes > 1:
                others = f"; another of its {settings.processes} processes may have it: try again"
            raise ApiError(
                404,
                f"request {request_id!r} is not among the last {settings.explain_last} that this"
                f" process of the router placed{others}",
                param="request_id",
            )
        return {"request_id": request_id, "tries": tries}

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        served = names(request)
        cards = [_model(served.card(name), started) for name in served.names()]
        return {"object": "list", "data": cards}

    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> dict[str, Any]:
        return _model(names(request).card(name), started)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return description.now()

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> Response:
        return Response(error.body, error.status, error.headers, "application/json")

    @app.exception_handler(RequestValidationError)
    async def wrong_parameter(request: Request, error: RequestValidationError) -> Response:
        wrong = error.errors()[0]
        name = str(wrong["loc"][-1])
        problem = wrong["msg"].replace("Input should be", "must be").partition(", unable")[0]
        shown = f"{name} {problem}, not {str(wrong['input'])[:60]!r}"
        return await api_error(request, bad_request(shown, name))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        message = f"{error.detail}: {request.method} {request.url.path}{_with_v1(app, request)}"
        headers = dict(error.headers or {})
        if error.status_code == 405:  # Starlette lists the methods of one route only
            headers = {"allow": ", ".join(_methods(app, request))}
        return await api_error(request, ApiError(error.status_code, message, headers=headers))

    # Made when it is first requested, as it would be a third of a router's start.
    description = live.derived(lambda now: cache(partial(describe, app, now)))
    return app


def _with_v1(app: FastAPI, request: Request) -> str:
    """The advice for a client whose base URL lacks /v1."""
    path = f"/v1{request.url.path}"
    known = {*ENDPOINTS, *(route.path for route in app.routes if isinstance(route, Route))}
    return f"; did you mean {path}?" if path in known else ""


def _methods(app: FastAPI, request: Request) -> list[str]:
    """The methods of all routes with the request's path."""
    here = (r for r in app.routes if isinstance(r, Route) and r.matches(request.scope)[0].value)
    return sorted({method for route in here for method in route.methods or ()})


def _model(card: Card, created: int) -> dict[str, Any]:
    return {
        "id": card.name,
        "object": "model",
        "created": created,
        "owned_by": "pando",
        "root": card.root,
        "parent": card.parent,
        "max_model_len": card.max_tokens or None,
    }
