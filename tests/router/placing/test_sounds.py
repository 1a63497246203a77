"""Forms with files of sound: placed by the files' digests and tokens, forwarded as they came."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from urllib3.filepost import encode_multipart_formdata

from pando_fleet.http.form import read_form
from pando_fleet.images.rule import ImageRule
from pando_fleet.images.sound_rule import SoundRule
from tests.router.tenants.tenants_world import bearer, guarded, key_file
from tests.router.world import Answer, Replica, RouterClient, cached, serving, status
from tests.worker.audio.sounds import noise, wav

PATH = "/v1/audio/transcriptions"
HEARS: dict[str, Any] = {
    "prefill_tokens_per_s": 1000.0,
    "capacity_tokens": 1_000_000,
    "endpoints": (PATH,),
    "image_rule": ImageRule(kind="none", sounds=SoundRule(window_s=30.0, tokens=1500)),
}
HELLO, BYE = wav(noise(2.0)), wav(noise(2.0, seed=1))


def asking(file: bytes | None = HELLO, **fields: str) -> tuple[bytes, str]:
    """Body and content-type."""
    parts: dict[str, Any] = {"model": "m"} | fields
    if file is not None:
        parts["file"] = ("a.wav", file)
    return encode_multipart_formdata(parts)


async def ask(
    router: RouterClient, file: bytes | None = HELLO, *, path: str = PATH, **fields: str
) -> Answer:
    body, content_type = asking(file, **fields)
    return await router.post(path, body, **{"content-type": content_type})


async def test_a_form_is_forwarded_as_it_came(valkey_url: str) -> None:
    async with Replica(valkey_url, "a", **HEARS) as a, serving(valkey_url) as router:
        await router.ready("a")
        body, content_type = asking(language="de", unknown="x")
        answer = await router.post(PATH, body, **{"content-type": content_type})
        assert answer.status == 200
        assert a.received[-1].body == body
        assert a.received[-1].headers["content-type"] == content_type


async def test_tokens_come_from_the_rule_in_the_heartbeat_and_the_length_in_the_header(
    valkey_url: str,
) -> None:
    explain = f"/route/explain?path={PATH}"
    async with Replica(valkey_url, "a", **HEARS), serving(valkey_url) as router:
        await router.ready("a")
        short = (await ask(router, path=explain)).json
        assert short["images"] == ["sound, 1500 tokens (2.0 s)"]
        assert 1500 <= short["prompt_tokens"] < 1530
        long = (await ask(router, wav(noise(31.0)), path=explain)).json
        assert long["images"] == ["sound, 3000 tokens (31.0 s)"]


async def test_a_repeated_file_goes_where_it_was_encoded(valkey_url: str) -> None:
    """Whatever is asked of it."""
    async with (
        Replica(valkey_url, "a", **HEARS) as a,
        Replica(valkey_url, "b", **HEARS) as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        a.answer = b.answer = cached(0, 1500)
        first = await ask(router)
        a.answer = b.answer = cached(1500, 1500)
        again = await ask(router, language="de", prompt="A letter.")
        assert again.replica == first.replica
        assert int(first.headers["x-pando-matched-tokens"]) == 0
        assert int(again.headers["x-pando-matched-tokens"]) >= 1400
        other = await ask(router, BYE)
        assert int(other.headers["x-pando-matched-tokens"]) == 0


async def test_an_alias_is_forwarded_by_its_real_name(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **HEARS) as a,
        serving(valkey_url, aliases={"whisper-1": "m"}) as router,
    ):
        await router.ready("a")
        assert (await ask(router, model="whisper-1", language="de")).status == 200
        received = a.received[-1]
        form = read_form(received.body, received.headers["content-type"].encode())
        assert form.fields == {"model": ["m"], "language": ["de"]}
        assert form.files == {"file": HELLO}


async def test_a_form_is_sent_again_if_a_replica_fails(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **HEARS) as a,
        Replica(valkey_url, "b", **HEARS) as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")

        async def once(request: web.Request) -> web.StreamResponse:
            a.answer, b.answer = a.say_name, b.say_name
            return await status(503)(request)

        a.answer = b.answer = once
        assert (await ask(router)).status == 200
        bodies = [one.body for one in (*a.received, *b.received)]
        assert len(bodies) == 2
        assert all(HELLO in body for body in bodies)


async def test_a_key_reaches_its_own_models_only_and_sound_counts_for_it(
    valkey_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, t={"tokens_per_minute": 2000}, u={"models": ["other"]})
    async with (
        Replica(valkey_url, "a", **HEARS) as a,
        guarded(valkey_url, file, a, expected_output_tokens=1) as router,
    ):
        body, content_type = asking()
        headers = {"content-type": content_type}
        asked = [await router.post(PATH, body, **headers, **bearer("t")) for _ in range(2)]
        assert [answer.status for answer in asked] == [200, 429]
        refused = await router.post(PATH, body, **headers, **bearer("u"))
        assert (refused.status, refused.json["error"]["param"]) == (404, "model")
        assert len(a.received) == 1


@pytest.mark.parametrize(
    ("parts", "param", "message"),
    [
        ([("file", ("a.wav", HELLO))], "model", "model is required"),
        ([("model", "m"), ("model", "n")], "model", "model is given 2 times"),
    ],
)
async def test_the_model_is_named_once(
    valkey_url: str, parts: list[Any], param: str, message: str
) -> None:
    async with Replica(valkey_url, "a", **HEARS) as a, serving(valkey_url) as router:
        await router.ready("a")
        body, content_type = encode_multipart_formdata(parts)
        answer = await router.post(PATH, body, **{"content-type": content_type})
        assert (answer.status, answer.json["error"]["param"]) == (400, param)
        assert answer.json["error"]["message"] == message
        assert not a.received


async def test_what_is_no_form_is_refused(valkey_url: str) -> None:
    async with Replica(valkey_url, "a", **HEARS) as a, serving(valkey_url) as router:
        await router.ready("a")
        answer = await router.post(PATH, {"model": "m"}, **{"content-type": "application/json"})
        assert answer.status == 400
        assert "multipart/form-data" in answer.json["error"]["message"]
        assert not a.received


async def test_a_form_without_a_file_is_for_the_replica_to_refuse(valkey_url: str) -> None:
    async with Replica(valkey_url, "a", **HEARS) as a, serving(valkey_url) as router:
        await router.ready("a")
        assert (await ask(router, None)).status == 200
        assert len(a.received) == 1


async def test_a_model_that_does_not_hear_is_refused_with_those_that_do(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **HEARS),
        Replica(valkey_url, "b", model="deaf", pool="p", endpoints=("/v1/completions",)),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        answer = await ask(router, model="deaf")
        error = answer.json["error"]
        assert (answer.status, error["code"], error["param"]) == (
            404,
            "endpoint_not_found",
            "model",
        )
        assert error["message"].endswith(f"{PATH} is served by 'm'")
