"""Schemathesis against every endpoint of a worker: no 5xx, no hang.

SCHEMA_EXAMPLES=1000 pytest -m long tests/worker/server/endpoints/test_schema.py   # longer
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.schemathesis_run import schemathesis
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess

pytestmark = pytest.mark.e2e

TOKEN = "a-token"
CHECKS = "not_a_server_error"
EXAMPLES_EACH = int(os.environ.get("SCHEMA_EXAMPLES", 60))
# The model hears nothing, and has no classes.
OTHER_MODELS = {
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/classify",
    "/v1/classify",
}
# These need a token, an adapter's files, or the id of a response that was kept.
HARDER = ("/v1/load_lora", "/v1/unload_lora", "/v1/responses/", "/v1/models/", "/flush", "/abort")
COUNT = re.compile(r'^pando_worker_http_requests_total\{path="(.*)",status="(.*)"\} (.*)$', re.M)
TEXT = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 100}, {"const": "a b"}]}
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 400}, "minItems": 1}
MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["user", "assistant"]}, "content": TEXT},
}


@pytest.fixture(scope="module")
def plain() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(tool_call_parser="hermes", max_loras=1, admin_token=TOKEN) as one:
        yield one


@pytest.fixture(scope="module")
def real() -> Iterator[WorkerProcess]:
    """With the scheduler and model, one short answer at a time."""
    with WorkerProcess.start(
        stand_in=False,
        threads=1,
        tool_call_parser="hermes",
        max_loras=1,
        context_length=256,  # of which /generate makes 128 unless asked for fewer
    ) as one:
        yield one


async def told(worker: WorkerProcess) -> dict[str, Any]:
    async with aiohttp.ClientSession(worker.url) as http, http.get("/openapi.json") as answer:
        document: dict[str, Any] = await answer.json()
        return document


async def statuses(worker: WorkerProcess) -> dict[str, set[str]]:
    """The statuses that each path has answered with."""
    async with aiohttp.ClientSession(worker.url) as http, http.get("/metrics") as answer:
        text = await answer.text()
    found: dict[str, set[str]] = {}
    for path, status, _ in COUNT.findall(text):
        found.setdefault(path.replace(":path}", "}"), set()).add(status)
    return found


@pytest.mark.long
async def test_the_edges_of_every_field_get_no_server_error(
    plain: WorkerProcess, tmp_path: Path
) -> None:
    document = await told(plain)
    found = await schemathesis(
        plain.url, document, "coverage", 1, tmp_path, checks=CHECKS, key=TOKEN
    )
    assert found is None, found
    answered = await statuses(plain)
    assert not document["paths"].keys() - answered.keys(), "each endpoint was asked"


@pytest.mark.long
async def test_well_formed_requests_at_random_get_no_server_error_and_no_hang(
    real: WorkerProcess, tmp_path: Path
) -> None:
    document = await told(real)
    deepen(document)
    found = await schemathesis(
        real.url, document, "fuzzing", EXAMPLES_EACH, tmp_path, checks=CHECKS
    )
    assert found is None, found
    answered = await statuses(real)
    easy = {path for path in document["paths"] if not path.startswith(HARDER)} - OTHER_MODELS
    assert not {path for path in easy if "200" not in answered[path]}, "all were used"


def deepen(document: dict[str, Any]) -> None:
    """Makes most requests reach the model."""
    for name, schema in document["components"]["schemas"].items():
        if not name.endswith("Request"):
            continue
        properties = schema["properties"]
        if "model" in properties:
            properties["model"] = {"const": MODEL_NAME}
        for text in ("prompt", "input", "text"):
            if text in properties:
                properties[text] = {"anyOf": [TEXT, IDS]} if text != "text" else TEXT
        if name == "NativeRequest":
            # Text and ids exclude each other, the model sees no images, and few tokens can resume.
            for harder in ("input_ids", "image_data", "resume_token_ids"):
                del properties[harder]
            schema["required"] = ["text"]
        if name == "RerankRequest":
            properties["query"] = TEXT
            properties["documents"] = {"type": "array", "minItems": 1, "maxItems": 4, "items": TEXT}
        if name == "ScoreRequest":
            del properties["queries"], properties["documents"]
            properties["text_1"] = properties["text_2"] = TEXT
            schema["required"] = ["text_1", "text_2"]
        if "messages" in properties:
            properties["messages"] = {"type": "array", "minItems": 1, "items": MESSAGE}
        if name == "TokenizeRequest":  # either the one or the other
            properties["prompt"] = {"anyOf": [TEXT, {"type": "null"}]}
            properties["messages"] = {"anyOf": [properties["messages"], {"type": "null"}]}
            schema["anyOf"] = [
                {"required": [one], "properties": {other: {"type": "null"}}}
                for one, other in (("prompt", "messages"), ("messages", "prompt"))
            ]
