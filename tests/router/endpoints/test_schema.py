"""The router follows its OpenAPI document for all requests that schemathesis generates.

SCHEMA_EXAMPLES=1000 pytest tests/router/endpoints/test_schema.py   # longer
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from urllib3.filepost import encode_multipart_formdata

from pando_fleet.http import time_limit
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.endpoint import JSON
from pando_router.errors import ApiError
from tests.router.world import Replica, serving
from tests.schemathesis_run import schemathesis

FEW = 10
EXAMPLES_EACH = int(os.environ.get("SCHEMA_EXAMPLES", FEW))  # per operation
MODEL = "my-model"  # in the document's examples
# The replica refuses errors outside the fields that the router reads; and a body whose fields are
# valid may still have no prompt.
JUDGED_BY_REPLICAS = "negative_data_rejection,positive_data_acceptance"
TEXTS = {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "null"}]}
TIMES = {name.decode() for name in time_limit.HEADERS}
TEXT_OR_IDS = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ]
}


def test_every_path_of_the_data_path_is_described_with_the_body_it_is_read_as() -> None:
    for endpoint in ENDPOINTS.values():
        write = _as_json if endpoint.media == JSON else encode_multipart_formdata
        endpoint.parse(*_bytes(*write(endpoint.example)))
        for field in msgspec.structs.fields(endpoint.body):
            given = {name: value for name, value in endpoint.example.items() if name != field.name}
            if field.required:
                with pytest.raises(ApiError, match=f"^{field.name} is required"):
                    endpoint.parse(*_bytes(*write(given)))


def _as_json(body: Mapping[str, Any]) -> tuple[bytes, str]:
    return json.dumps(body).encode(), ""


def _bytes(body: bytes, content_type: str) -> tuple[bytes, bytes]:
    return body, content_type.encode()


async def test_the_document_names_what_the_settings_allow(valkey_url: str) -> None:
    async with (
        serving(valkey_url) as router,
        serving(valkey_url, allow_policy_header=True, session_header="x-who") as other,
    ):
        plain, more = [(await r.get("/openapi.json")).json for r in (router, other)]
    names = [
        {p["name"] for p in document["paths"]["/v1/completions"]["post"]["parameters"]}
        for document in (plain, more)
    ]
    assert names[1] - names[0] == {"x-pando-policy", "x-who"}
    assert plain["paths"].keys() > ENDPOINTS.keys() | {"/fleet", "/route/explain", "/v1/models"}


@pytest.mark.parametrize(
    "deep",
    [pytest.param(False, marks=pytest.mark.long, id="as it is"), pytest.param(True, id="deeper")],
)
async def test_schemathesis_finds_no_server_error_and_no_hang(
    valkey_url: str, tmp_path: Path, deep: bool
) -> None:
    """With the document as it is, and deeper, with an existing model and well-formed prompts."""
    async with (
        Replica(valkey_url, "a", model=MODEL) as a,
        Replica(valkey_url, "b", model=MODEL) as b,
        serving(valkey_url, allow_policy_header=True, allow_priority_header=True) as router,
    ):
        await router.ready("a", "b")
        document = (await router.get("/openapi.json")).json
        phases = "examples,coverage,fuzzing"
        if deep:
            deepen(document)
            phases = "fuzzing"
        elif EXAMPLES_EACH <= FEW:
            phases = "examples,coverage"  # edge cases of each field and method, and their pairs
        found = await schemathesis(
            router.url, document, phases, EXAMPLES_EACH, tmp_path, excluded=JUDGED_BY_REPLICAS
        )
        assert found is None, found
        if deep:
            asked = {received.path.partition("?")[0] for received in a.received + b.received}
            assert asked == ENDPOINTS.keys(), "each kind of body has reached a replica"
        fleet = (await router.get("/fleet")).json
        assert all(r["in_flight"] == 0 for r in fleet["pools"]["default"])
        assert await router.metric("pando_router_requests_in_flight") == 0


def deepen(document: dict[str, Any]) -> None:
    """Makes most requests reach a replica: the document allows any prompt, and bad times in headers
    would end many requests earlier."""
    for path in ENDPOINTS:
        operation = document["paths"][path]["post"]
        operation["parameters"] = [p for p in operation["parameters"] if p["name"] not in TIMES]
    for name, schema in document["components"]["schemas"].items():
        properties = schema.get("properties", {})
        if not name.endswith("Body"):
            continue
        properties["model"] = {"const": MODEL}
        for prompt in ("prompt", "input", "text", "query", "text_1", "text_2", "input_ids"):
            if prompt in properties:
                properties[prompt] = TEXT_OR_IDS
        if "messages" in properties:
            properties["messages"] = {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["role", "content"],
                    "properties": {
                        "role": {"enum": ["system", "user", "assistant", "tool"]},
                        "content": TEXTS,
                        "tool_calls": {"type": "array"},
                    },
                },
            }
        for number in ("max_tokens", "n", "priority", "seed"):
            if number in properties:
                properties[number] = {"type": ["integer", "null"]}
