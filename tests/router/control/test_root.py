"""The root of the router: a page for people, paths for programs; and what lacks /v1."""

import aiohttp
import pytest

from pando_fleet.distribution import version
from tests.router.world import completion, serving

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


@pytest.mark.parametrize(("chat_page", "page"), [(False, "/dashboard"), (True, "/chat")])
async def test_the_root_leads_people_to_a_page_and_shows_programs_the_paths(
    valkey_url: str, chat_page: bool, page: str
) -> None:
    async with serving(valkey_url, chat_page=chat_page) as router, aiohttp.ClientSession() as http:
        async with http.get(router.url + "/", headers={"accept": BROWSER}) as answer:
            assert answer.url.path == page
            assert "<title>" in await answer.text()
        async with http.get(router.url + "/", allow_redirects=False) as answer:
            assert answer.status == 200
            said = await answer.json()
        assert said["version"] == version()
        assert said["models"] == "/v1/models"
        assert said["dashboard"] == "/dashboard"
        assert ("chat" in said) == chat_page


async def test_a_path_without_v1_is_hinted_at(valkey_url: str) -> None:
    async with serving(valkey_url) as router:
        answer = await router.post("/chat/completions", completion())
        assert answer.status == 404
        assert answer.json["error"]["message"].endswith("; did you mean /v1/chat/completions?")
        answer = await router.get("/models")
        assert answer.json["error"]["message"].endswith("; did you mean /v1/models?")
        answer = await router.get("/nothing")
        assert "did you mean" not in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "methods"), [("/route/explain", "GET, POST"), ("/recording", "GET, PATCH")]
)
async def test_a_wrong_method_gets_those_of_its_path(
    valkey_url: str, path: str, methods: str
) -> None:
    async with (
        serving(valkey_url) as router,
        aiohttp.ClientSession() as http,
        http.delete(router.url + path) as answer,
    ):
        assert (answer.status, answer.headers["allow"]) == (405, methods)


async def test_load_tools_find_health_and_version(valkey_url: str) -> None:
    async with serving(valkey_url) as router:
        assert (await router.get("/health")).status == (await router.get("/readyz")).status == 503
        assert (await router.get("/version")).json == {"version": version()}
