"""An endpoint is defined in one place: no other module names its path; a new one works
everywhere."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import pando_router
from pando_fleet.placement.prefix import completion_bytes
from pando_router.endpoints import ENDPOINTS, Endpoint
from pando_router.endpoints.endpoint import Replay
from pando_router.endpoints.error_forms import ANTHROPIC
from pando_router.endpoints.openai_events import OpenAIEvents
from pando_router.migration.form import Form
from pando_router.requests.request import Request
from pando_router.warming.prefixes import SentRequest
from pando_router.warming.replay import prefill
from tests.router.world import fleet
from tools.generate.endpoints import PAGE, TABLE

SOURCES = Path(pando_router.__file__).parent


def test_no_other_module_of_the_router_names_an_endpoints_path() -> None:
    named = {
        f"{file.relative_to(SOURCES)}:{line} names {text!r}"
        for file in SOURCES.rglob("*.py")
        if file.parent.name != "endpoints"
        for line, text in literals(file)
        if any(text == path or text.startswith(f"{path}/") for path in ENDPOINTS)
    }
    assert not named
    chat = list(literals(SOURCES / "endpoints" / "chat.py"))
    assert "/v1/chat/completions" in [text for _, text in chat], "the search finds paths"


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """Texts and bytes in the code; no docstring begins like a path."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            value = node.value
            yield node.lineno, value if isinstance(value, str) else value.decode("latin-1")


def test_the_documentation_has_all_endpoints() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert TABLE.search(page)
    assert all(f"`{path}`" in page for path in ENDPOINTS)


class PoemBody(msgspec.Struct):
    model: str
    theme: str
    stream: bool = False


def read(fields: PoemBody) -> Request:
    prefix = completion_bytes(fields.theme)
    return Request(model=fields.model, prefix=prefix, stream=fields.stream, deterministic=True)


POEMS = Endpoint(
    paths=("/v9/poems", "/poems"),
    api="Nobody",
    placed_by="`theme`",
    body=PoemBody,
    read=read,
    example={"model": "m", "theme": "the sea"},
    errors=ANTHROPIC,
    replay=Replay(("theme",), {"verses": 1}),
    migration=Form(OpenAIEvents(), ("theme",)),
)


async def test_a_new_endpoint_needs_no_more_than_its_registration(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in POEMS.paths:
        monkeypatch.setitem(ENDPOINTS, path, POEMS)
    theme = "the sea and the hills " * 40
    body = {"model": "m", "theme": theme}
    async with fleet(valkey_url, "a") as (router, [a]):
        for path in POEMS.paths:
            answer = await router.post(path, body)
            assert (answer.status, a.received[-1].path) == (200, path)
        assert int(answer.headers["x-pando-matched-tokens"]) > 0
        wrong = await router.post("/poems", {"model": "m"})
        assert (wrong.status, wrong.json["type"]) == (400, "error")  # Anthropic's form
        document = (await router.get("/openapi.json")).json
        assert document["paths"]["/poems"]["post"]["operationId"] == "poems"
        assert document["components"]["schemas"]["PoemBody"]["required"] == ["model", "theme"]
        terms = (await router.post("/route/explain?path=/poems", body)).json
        assert terms["chosen"] == "a"
    cut = json.loads(prefill(SentRequest("/poems", json.dumps(body).encode(), "m"), 2))
    assert (cut["verses"], cut["theme"]) == (1, theme[:512])
