"""Describes the router's API as OpenAPI 3.1, served at /openapi.json.

FastAPI describes the control plane. The data path is described by the structs that parse request
bodies, so only the fields that the router reads are listed; the replica checks the others.
"""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pando_fleet.http import time_limit
from pando_router.chat.routes import CHAT_PATH
from pando_router.configuration.settings import RouterSettings
from pando_router.endpoints import ENDPOINTS, Endpoint
from pando_router.endpoints.chat import CHAT
from pando_router.endpoints.responses import STORED_METHODS, STORED_PREFIX
from pando_router.errors import OpenAIError
from pando_router.http.headers import PRIORITY_HEADER
from pando_router.placing.steering import EXPLAIN_HEADER, POLICY_HEADER
from pando_router.policies import POLICIES
from pando_router.tenants.guard import OPEN_PATHS

Json = dict[str, Any]

_COMPONENT = "#/components/schemas/{name}"


def describe(app: FastAPI, settings: RouterSettings) -> Json:
    """The control plane `app` and the data path together."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description="The router's errors have OpenAI's form; on Anthropic's paths, Anthropic's.",
        routes=app.routes,
    )
    if not settings.chat_page:
        del document["paths"][CHAT_PATH]
    headers = _headers(settings)
    for path, endpoint in ENDPOINTS.items():
        document["paths"][path] = {"post": _operation(path, endpoint, headers)}
    for rest, methods in STORED_METHODS.items():
        document["paths"][f"{STORED_PREFIX}{{response_id}}{rest}"] = {
            method.lower(): _stored(method, rest) for method in methods
        }
    components = document.setdefault("components", {})
    bodies = {e.body.__name__: _schema(e.body) for e in ENDPOINTS.values()}
    errors = {endpoint.errors.schema for endpoint in ENDPOINTS.values()}
    _, forms = msgspec.json.schema_components(errors, ref_template=_COMPONENT)
    components.setdefault("schemas", {}).update(forms, **bodies)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's default; here it is 400
            operation["responses"].setdefault("default", _error(OpenAIError))
    document["paths"]["/route/explain"]["post"]["requestBody"] = _explained()
    if settings.api_keys is not None:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
        for path in (OPEN_PATHS | {CHAT_PATH}) & document["paths"].keys():
            document["paths"][path]["get"]["security"] = []
    return document


def _schema(body: type[msgspec.Struct]) -> Json:
    fields = msgspec.structs.fields(body)
    return {
        "type": "object",
        "properties": {field.encode_name: msgspec.json.schema(field.type) for field in fields},
        "required": [field.encode_name for field in fields if field.required],
    }


def _operation(path: str, endpoint: Endpoint[Any], headers: list[Json]) -> Json:
    body: Json = {"schema": _reference(endpoint.body), "example": endpoint.example}
    answer = {
        "description": "the replica's answer, unchanged",
        "content": {"application/json": {}, "text/event-stream": {}},
    }
    return {
        "operationId": path.strip("/").replace("/", "_"),
        "tags": ["inference"],
        "description": f"{endpoint.api}; placed by {endpoint.placed_by}",
        "parameters": headers,
        "requestBody": {"required": True, "content": {endpoint.media: body}},
        "responses": {"200": answer, "default": _error(endpoint.errors.schema)},
    }


def _stored(method: str, rest: str) -> Json:
    name = {"name": "response_id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "operationId": f"{method.lower()}_response{rest.replace('/', '_')}",
        "tags": ["inference"],
        "parameters": [name],
        "responses": {"200": {"description": "the answer of the replica that stores the response"}},
    }


def _explained() -> Json:
    content: dict[str, Json] = {}
    for media in dict.fromkeys(endpoint.media for endpoint in ENDPOINTS.values()):
        bodies = dict.fromkeys(e.body for e in ENDPOINTS.values() if e.media == media)
        content[media] = {"schema": {"anyOf": [*map(_reference, bodies)]}}
    content[CHAT.media]["example"] = CHAT.example
    return {"required": True, "content": content}


def _error(form: type[msgspec.Struct]) -> Json:
    # A replica's own errors are passed on unchanged.
    return {
        "description": "what is wrong, and what would be right",
        "content": {"application/json": {"schema": _reference(form)}},
    }


def _reference(struct: type[msgspec.Struct]) -> Json:
    return {"$ref": _COMPONENT.format(name=struct.__name__)}


def _headers(settings: RouterSettings) -> list[Json]:
    """The headers that steer a request, if the settings allow them."""
    text: Json = {"type": "string"}
    found = [
        ("x-request-id", text, "id of the request; generated if it is missing"),
        (settings.session_header, text, "id of the session, for the policy `session`"),
        (EXPLAIN_HEADER.decode(), {"enum": ["true", "false"]}, "keeps all candidates' scores"),
        (
            time_limit.SECONDS.decode(),
            {"type": "number", "exclusiveMinimum": 0},
            "time limit of the request, in seconds",
        ),
        (
            time_limit.MILLISECONDS.decode(),
            {"type": "integer", "minimum": 1, "maximum": 999_999_999},
            "the same in milliseconds; the shorter limit applies",
        ),
    ]
    if settings.allow_policy_header:
        found.append((POLICY_HEADER.decode(), {"enum": list(POLICIES)}, "placement policy"))
    if settings.allow_priority_header:
        found.append((PRIORITY_HEADER.decode(), {"type": "integer"}, "smaller runs first"))
    return [
        {"name": name, "in": "header", "required": False, "schema": schema, "description": says}
        for name, schema, says in found
    ]
