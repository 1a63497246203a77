"""All endpoints but the data path, as one application: each package's routes, a root that shows the
way to them, and the form of errors."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from pando_fleet.distribution import version
from pando_router.chat.routes import CHAT_PATH
from pando_router.configuration.live import Live
from pando_router.control.openapi import describe
from pando_router.dashboard.routes import PAGE_PATH
from pando_router.endpoints import ENDPOINTS
from pando_router.errors import ApiError, bad_request
from pando_router.tenants.guard import ROOT_PATH


def create_control(live: Live, routers: Sequence[APIRouter]) -> FastAPI:
    app = FastAPI(title="Pando router", version=version(), openapi_url=None)
    for router in routers:
        app.include_router(router)

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

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return description.now()

    # `app.routes` has each included router as one entry, without its paths.
    known = (app.router, *routers)
    routes = [route for each in known for route in each.routes if isinstance(route, Route)]

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
        message = f"{error.detail}: {request.method} {request.url.path}{_with_v1(routes, request)}"
        headers = dict(error.headers or {})
        if error.status_code == 405:  # Starlette lists the methods of one route only
            headers = {"allow": ", ".join(_methods(routes, request))}
        return await api_error(request, ApiError(error.status_code, message, headers=headers))

    # Made when it is first requested, as it would be a third of a router's start.
    description = live.derived(lambda now: cache(partial(describe, app, now)))
    return app


def _with_v1(routes: Sequence[Route], request: Request) -> str:
    """The advice for a client whose base URL lacks /v1."""
    path = f"/v1{request.url.path}"
    known = {*ENDPOINTS, *(route.path for route in routes)}
    return f"; did you mean {path}?" if path in known else ""


def _methods(routes: Sequence[Route], request: Request) -> list[str]:
    """The methods of all routes with the request's path."""
    here = (route for route in routes if route.matches(request.scope)[0].value)
    return sorted({method for route in here for method in route.methods or ()})
