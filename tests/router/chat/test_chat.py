"""The chat page without a browser; test_chat_page.py uses one."""

import re
from pathlib import Path

import pytest

from pando_router import chat
from pando_router.chat.routes import PAGE, SCRIPTS
from pando_router.configuration.settings import RouterSettings
from pando_router.pages.document import read_document
from tests.router.control.palette import MEANT, degrees_apart, shared, variables
from tests.router.tenants.tenants_world import key_file
from tests.router.world import serving


async def test_it_is_off_unless_a_setting_says_otherwise(valkey_url: str) -> None:
    assert RouterSettings.model_fields["chat_page"].default is False
    async with serving(valkey_url) as router:
        assert (await router.get("/chat")).status == 404
        assert "/chat" not in (await router.get("/openapi.json")).json["paths"]


async def test_with_api_keys_the_page_is_open_and_what_it_asks_for_is_not(
    valkey_url: str, tmp_path: Path
) -> None:
    keys = key_file(tmp_path)
    async with serving(valkey_url, api_keys=keys, chat_page=True) as router:
        page = await router.get("/chat")
        assert page.status == 200
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "connect-src 'self'", "trusted-types 'none'"} <= set(policy)
        document = (await router.get("/openapi.json")).json["paths"]["/chat"]["get"]
        assert document["security"] == []
        assert (await router.get("/v1/models")).status == 401


def test_no_text_becomes_markup_and_nothing_is_fetched_from_elsewhere() -> None:
    html = read_document(PAGE, SCRIPTS).html
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", html)
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,|/dashboard\")", html)
    assert not re.findall(r"\bon\w+=\"|\bstyle=\"|javascript:", html)


def test_page_has_names_for_everything_that_is_operated() -> None:
    html = read_document(PAGE, SCRIPTS).html
    body = html[: html.index("<script>")]
    for field in re.findall(r"(?:<label[^>]*>[^<]*)?<(?:input|select|textarea)[^>]*>", body):
        name = re.search(r' id="([\w-]+)"', field)
        named = name and f'<label for="{name[1]}"' in body
        assert field.startswith("<label") or "aria-label=" in field or named, field
    ids = re.findall(r"\bid=\"([\w-]+)\"", body)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"byId\(\"([\w-]+)\"\)", html)) <= set(ids)
    assert '<html lang="en">' in html


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_replicas_have_colours_that_mean_nothing_else(scheme: int) -> None:
    replicas = variables(Path(chat.__file__).parent / "page/style.css", scheme)
    replicas = {name: colour for name, colour in replicas.items() if re.match(r"r\d", name)}
    assert len(replicas) == 5
    for name, colour in replicas.items():
        for meaning in MEANT:
            assert degrees_apart(colour, shared(scheme)[meaning]) >= 20, (name, meaning)
        others = [other for key, other in replicas.items() if key != name]
        assert min(degrees_apart(colour, other) for other in others) >= 20, name
