"""What clients may ask of the router, as OpenAPI 3.1: served at /openapi.json.

The control plane is described by FastAPI, the data path from the structs that its bodies are read
with. So of a body it tells what the router reads; whatever else it holds is the replica's to judge.
"""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pando_router.admission.claims import PRIORITY_HEADER, TIMEOUT_HEADER
from pando_router.requests import BODIES
from pando_router.settings import RouterSettings
from pando_router.steering import EXPLAIN_HEADER, POLICIES, POLICY_HEADER
from pando_router.stored import PATHS as STORED
from pando_router.tenants.guard import OPEN_PATHS

Json = dict[str, Any]

_MODEL = "my-model"
_PROMPT = {"model": _MODEL, "prompt": "Once upon a time"}
_CHAT = {"model": _MODEL, "messages": [{"role": "user", "content": "What is a tree?"}]}
_QUERY = {"model": _MODEL, "query": "tree", "documents": ["oak", "granite"]}
_PAIR = {"model": _MODEL, "text_1": "tree", "text_2": ["oak", "granite"]}
_INPUT = {"model": _MODEL, "input": "What is a tree?"}
EXAMPLES: dict[str, Json] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": _PROMPT,
    "/v1/responses": _INPUT,
    "/v1/messages": {**_CHAT, "max_tokens": 100},
    "/v1/messages/count_tokens": _CHAT,
    "/v1/embeddings": _INPUT,
    "/v1/rerank": _QUERY,
    "/rerank": _QUERY,
    "/v1/score": _PAIR,
    "/score": _PAIR,
    "/v1/classify": _INPUT,
    "/classify": _INPUT,
    "/generate": {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 10}},
    "/tokenize": _PROMPT,
    "/detokenize": {"model": _MODEL, "tokens": [1, 2, 3]},
}

_nullable = {"type": ["string", "null"]}
_COMPONENTS: Json = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": _nullable,
                    "code": _nullable,
                },
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error", "request_id"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            },
            "request_id": {"type": "string"},
        },
    },
}


def describe(app: FastAPI, settings: RouterSettings) -> Json:
    """The control plane `app` and the data path together."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description="Errors of the router have OpenAI's form, for Anthropic's paths theirs.",
        routes=app.routes,
    )
    headers = _headers(settings)
    for path in BODIES:
        document["paths"][path] = {"post": _operation(path, headers)}
    for rest, methods in STORED.items():
        document["paths"][f"/v1/responses/{{response_id}}{rest}"] = {
            method.lower(): _stored(method, rest) for method in methods
        }
    components = document.setdefault("components", {})
    bodies = {body.__name__: _schema(body) for body in BODIES.values()}
    components.setdefault("schemas", {}).update(_COMPONENTS, **bodies)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's; it is 400 here
            operation["responses"].setdefault("default", _error("Error"))
    document["paths"]["/route/explain"]["post"]["requestBody"] = _explained()
    if settings.api_keys is not None:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
        for path in OPEN_PATHS & document["paths"].keys():
            document["paths"][path]["get"]["security"] = []
    return document


def _schema(body: type[msgspec.Struct]) -> Json:
    fields = msgspec.structs.fields(body)
    return {
        "type": "object",
        "properties": {field.encode_name: msgspec.json.schema(field.type) for field in fields},
        "required": [field.encode_name for field in fields if field.required],
    }


def _operation(path: str, headers: list[Json]) -> Json:
    body: Json = {
        "schema": {"$ref": f"#/components/schemas/{BODIES[path].__name__}"},
        "example": EXAMPLES[path],
    }
    answer = {
        "description": "the replica's answer, as it came",
        "content": {"application/json": {}, "text/event-stream": {}},
    }
    form = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    return {
        "operationId": path.strip("/").replace("/", "_"),
        "tags": ["inference"],
        "parameters": headers,
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {"200": answer, "default": _error(form)},
    }


def _stored(method: str, rest: str) -> Json:
    name = {"name": "response_id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "operationId": f"{method.lower()}_response{rest.replace('/', '_')}",
        "tags": ["inference"],
        "parameters": [name],
        "responses": {"200": {"description": "the answer of the replica that remembers it"}},
    }


def _explained() -> Json:
    bodies = sorted({body.__name__ for body in BODIES.values()})
    schema = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in bodies]}
    content = {"schema": schema, "example": EXAMPLES["/v1/chat/completions"]}
    return {"required": True, "content": {"application/json": content}}


def _error(form: str) -> Json:
    # A replica's own errors are passed on as they came.
    schema = {"$ref": f"#/components/schemas/{form}"}
    return {
        "description": "what was wrong, and what would be right",
        "content": {"application/json": {"schema": schema}},
    }


def _headers(settings: RouterSettings) -> list[Json]:
    """Those that steer a request, as far as the settings let them."""
    text: Json = {"type": "string"}
    found = [
        ("x-request-id", text, "names the request; one is made up where it does not"),
        (settings.session_header, text, "names the session, for the policy `session`"),
        (EXPLAIN_HEADER.decode(), {"enum": ["true", "false"]}, "keeps all candidates' scores"),
        (
            TIMEOUT_HEADER.decode(),
            {"type": "number", "exclusiveMinimum": 0},
            "longest wait for a place, in seconds",
        ),
    ]
    if settings.allow_policy_header:
        found.append((POLICY_HEADER.decode(), {"enum": list(POLICIES)}, "how it is placed"))
    if settings.allow_priority_header:
        found.append((PRIORITY_HEADER.decode(), {"type": "integer"}, "higher ones go first"))
    return [
        {"name": name, "in": "header", "required": False, "schema": schema, "description": says}
        for name, schema, says in found
    ]
