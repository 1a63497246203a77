"""The HTTP application: FastAPI with all routes and error forms, inside the edge."""

from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pando_fleet.current import Current
from pando_fleet.http.server.bodies import Bodies
from pando_worker.server.endpoints import (
    adapters,
    chat,
    classify,
    completions,
    control,
    embeddings,
    messages,
    native,
    pairs,
    probes,
    responses,
    speech,
    tokenization,
)
from pando_worker.server.errors import ApiError, bad_request, error_response, internal_error
from pando_worker.server.front.edge import BodyLimits, Edge
from pando_worker.server.front.json_bodies import UNREADABLE
from pando_worker.server.pooling import NoEmbeddings
from pando_worker.server.protocol.validation import validation_error
from pando_worker.server.service import Service

_GENERATING: Final = (completions, native)
_CONVERSING: Final = (chat, messages, responses)


def endpoints(service: Service) -> tuple[str, ...]:
    """Paths that this model serves; routers send no other requests here."""
    model = service.model
    if service.hearing:
        able = [tokenization, speech]
    else:
        talks = model.has_head and model.tokenizer.chat_template is not None
        able = [
            tokenization,
            *(_GENERATING if model.has_head else ()),
            *(_CONVERSING if talks else ()),
            *(() if isinstance(model.pooling, NoEmbeddings) else (embeddings, pairs)),
            *((classify, pairs) if model.classifier else ()),
        ]
    routes = [route for module in able for route in module.routes(service).routes]
    return tuple(sorted(route.path for route in routes if isinstance(route, APIRoute)))


def make_app(service: Service) -> Edge:
    app = FastAPI(title="Pando worker", redirect_slashes=False, strict_content_type=False)
    for endpoints in (
        chat,
        completions,
        classify,
        embeddings,
        messages,
        native,
        pairs,
        responses,
        tokenization,
        adapters,
        control,
        probes,
        speech,
    ):
        app.include_router(endpoints.routes(service))
    app.include_router(responses.kept_routes(service))
    answer_errors(app)
    settings = service.settings
    return Edge(
        app,
        service.gate,
        service.admin,
        service.metrics,
        Bodies(Current(settings.max_bodies_bytes), Current(settings.max_connections)),
        BodyLimits(settings.max_body_bytes, settings.max_body_values),
        service.tracing,
    )


def answer_errors(app: FastAPI) -> None:
    """Gives the app's errors the form of their API."""
    app.exception_handler(ApiError)(_api_error)
    app.exception_handler(RequestValidationError)(_invalid_request)
    app.exception_handler(HTTPException)(_http_error)
    app.exception_handler(RecursionError)(_nested_too_deep)
    app.exception_handler(Exception)(_failure)


async def _api_error(request: Request, error: ApiError) -> Response:
    return error_response(error, request.scope)


async def _invalid_request(request: Request, error: RequestValidationError) -> Response:
    field = getattr(request.scope.get("route"), "body_field", None)
    return error_response(
        validation_error(error, field and field.field_info.annotation), request.scope
    )


async def _nested_too_deep(request: Request, error: RecursionError) -> Response:
    """Only code that walks the client's input recurses: tools, a schema, a message's fields."""
    return error_response(bad_request("the request is nested too deeply"), request.scope)


async def _failure(request: Request, error: Exception) -> Response:
    """A bug. The edge logs the traceback; the client gets the request id."""
    return error_response(internal_error(), request.scope)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """The framework's errors: an unknown path, a wrong method, a body that cannot be parsed."""
    what = f"{request.method} {request.url.path}"
    match error.status_code:
        case 404:
            message = f"there is no {what}"
        case 405:
            message = f"this path has no method {what}"
        case 400 if error.detail == UNREADABLE:
            message = "the request body cannot be read: it is nested too deeply, or has a number"
            message += " of too many digits, or is not Unicode"
        case _:
            message = str(error.detail)
    headers = dict(error.headers or {})
    return error_response(ApiError(error.status_code, message, headers=headers), request.scope)
