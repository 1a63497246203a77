"""Requests with images: placed by the images' tokens and digests, and their bytes kept nowhere."""

import base64
import dataclasses
import json
from typing import Any

import pytest
from redis.asyncio import Redis

from pando_fleet.images.film_rule import FilmRule
from pando_fleet.images.rule import ImageRule
from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.endpoints import ENDPOINTS
from tests.router.tenants.tenants_world import bearer, guarded, key_file
from tests.router.world import Answer, Replica, RouterClient, cached, serving, until
from tests.worker.vision.films import film
from tests.worker.vision.photographs import data_url, path

CAT, COFFEE = (data_url(path(name).read_bytes()) for name in ("chelsea.png", "coffee.png"))
FIXED = ImageRule(kind="fixed", tokens=576)
GRID = ImageRule(kind="grid", cell=28, min_pixels=3136, max_pixels=12_845_056)
RATES: dict[str, Any] = {"prefill_tokens_per_s": 1000.0, "capacity_tokens": 1_000_000}
EXPLAIN = "/route/explain?path=/v1/chat/completions"


def asking(*urls: str, text: str = "What is this?") -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [*images, {"type": "text", "text": text}]
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


async def explained(router: RouterClient, body: dict[str, Any]) -> Any:
    return (await router.post(EXPLAIN, body)).json


async def ask(router: RouterClient, body: dict[str, Any]) -> Answer:
    return await router.post("/v1/chat/completions", body)


def matched(answer: Answer) -> int:
    return int(answer.headers["x-pando-matched-tokens"])


async def test_tokens_come_from_the_rule_in_the_heartbeat_and_the_size_in_the_header(
    valkey_url: str,
) -> None:
    async with Replica(valkey_url, "a", **RATES, image_rule=GRID), serving(valkey_url) as router:
        await router.ready("a")
        # 451 x 300 is 16 x 11 cells of 28 pixels, and 600 x 400 is 21 x 14.
        small, large = await explained(router, asking(CAT)), await explained(router, asking(COFFEE))
        assert small["images"] == ["image, 176 tokens (451 x 300 pixels)"]
        assert large["images"] == ["image, 294 tokens (600 x 400 pixels)"]
        assert large["prompt_tokens"] - small["prompt_tokens"] == 294 - 176
        both = await explained(router, asking(CAT, COFFEE, "https://example.com/a.png"))
        assert both["images"][:2] == small["images"] + large["images"]
        assert both["images"][2].startswith("image, 999 tokens")  # of 1024 x 768 pixels
        none = await explained(router, asking())
        assert none["images"] == []


async def test_an_image_to_embed_counts_as_in_a_chat(valkey_url: str) -> None:
    async with Replica(valkey_url, "a", **RATES, image_rule=GRID), serving(valkey_url) as router:
        await router.ready("a")
        found = await router.post("/route/explain?path=/v1/embeddings", asking(CAT))
        assert found.json["images"] == ["image, 176 tokens (451 x 300 pixels)"]
        chat = await explained(router, asking(CAT))
        assert found.json["prompt_tokens"] == chat["prompt_tokens"]


async def test_images_beside_a_text_count_as_in_a_chat(valkey_url: str) -> None:
    """Of SGLang's native API: by their bytes, however spelled, and by their tokens."""
    path = "/route/explain?path=/generate"

    def beside(text: str | list[int], *urls: str) -> dict[str, Any]:
        return {"model": "m", "text" if isinstance(text, str) else "input_ids": text} | (
            {"image_data": list(urls)} if urls else {}
        )

    async with Replica(valkey_url, "a", **RATES, image_rule=GRID), serving(valkey_url) as router:
        await router.ready("a")
        none = (await router.post(path, beside("over <image>"))).json
        both = (await router.post(path, beside("over <image>", CAT, COFFEE))).json
        assert none["images"] == []
        assert both["images"] == [
            "image, 176 tokens (451 x 300 pixels)",
            "image, 294 tokens (600 x 400 pixels)",
        ]
        assert both["prompt_tokens"] - none["prompt_tokens"] == pytest.approx(470, abs=20)
        ids = (await router.post(path, beside([1, 2, 3], CAT))).json
        assert ids["prompt_tokens"] == 3 + 176

        first = await router.post("/generate", beside("over <image> the dog", CAT))
        assert first.status == 200, first.body
        again = await router.post("/generate", beside("a <image> fox", CAT.rstrip("=")))
        assert matched(again) == pytest.approx(176, abs=CHUNK_BYTES / 4)
        assert matched(await router.post("/generate", beside("a <image> fox", COFFEE))) == 0


async def test_a_videos_tokens_come_from_its_header(valkey_url: str) -> None:
    films = FilmRule(
        bounds="each",
        fps=2.0,
        min_frames=4,
        max_frames=768,
        group=2,
        cell=28,
        min_pixels=784,
        max_pixels=784_000,
    )
    rule = dataclasses.replace(GRID, films=films)
    async with Replica(valkey_url, "a", **RATES, image_rule=rule), serving(valkey_url) as router:
        await router.ready("a")

        def showing(url: str) -> dict[str, Any]:
            part = {"type": "video_url", "video_url": {"url": url}}
            return {"model": "m", "messages": [{"role": "user", "content": [part]}]}

        url = data_url(film(frames=40, size=(112, 84)), "video/mp4")
        found = await explained(router, showing(url))
        # 5 s are 10 pictures, 5 frames of 4 x 3 cells of 28 pixels.
        assert found["images"] == ["video, 60 tokens (112 x 84 pixels, 5.0 s)"]
        elsewhere = await explained(router, showing("https://example.com/a.mp4"))
        # Ten seconds of 1280 x 720 pixels: 10 frames of 42 x 23.
        assert elsewhere["images"] == ["video, 9660 tokens (1280 x 720 pixels, 10.0 s)"]


async def test_a_worker_of_the_release_before_has_todays_estimate(valkey_url: str) -> None:
    """Its heartbeat has no rule."""
    async with Replica(valkey_url, "a", **RATES), serving(valkey_url) as router:
        await router.ready("a")
        found = await explained(router, asking(CAT))
        assert found["images"] == ["image, unknown tokens (451 x 300 pixels)"]
        assert found["prompt_tokens"] < 30


async def test_a_rule_that_only_a_newer_release_knows_counts_nothing(valkey_url: str) -> None:
    rule = ImageRule(kind="spiral", tokens=576)
    async with Replica(valkey_url, "a", **RATES, image_rule=rule), serving(valkey_url) as router:
        await router.ready("a")
        assert (await explained(router, asking(CAT)))["prompt_tokens"] < 30


async def test_an_image_weighs_as_much_as_text_of_its_tokens(valkey_url: str) -> None:
    """The second turn goes where the image is, and expects its tokens to be cached there."""
    async with (
        Replica(valkey_url, "a", **RATES, image_rule=FIXED) as a,
        Replica(valkey_url, "b", **RATES, image_rule=FIXED) as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        a.answer = b.answer = cached(0, 590)
        first = await ask(router, asking(CAT))
        a.answer = b.answer = cached(590, 620)
        spelled = CAT.replace("data:image/png", "DATA:IMAGE/PNG").rstrip("=")
        again = await ask(router, asking(spelled, text="What is this? A cat?"))
        assert again.replica == first.replica
        assert matched(first) == 0
        assert 576 - CHUNK_BYTES / 4 <= matched(again) <= 576 + CHUNK_BYTES / 4
        # The replica's report agrees, so the path is not cut.
        third = await ask(router, asking(CAT, text="What is this? A dog?"))
        assert matched(third) == matched(again)
        other = await ask(router, asking(COFFEE))
        assert matched(other) == 0
        why = await router.get(f"/route/explain?request_id={other.headers['x-request-id']}")
        assert why.json["tries"][0]["images"] == ["image, 576 tokens (600 x 400 pixels)"]


@pytest.mark.parametrize("rule", [FIXED, None])
async def test_redis_has_nothing_of_an_image_but_hashes(
    valkey_url: str, rule: ImageRule | None
) -> None:
    async with (
        Replica(valkey_url, "a", **RATES, image_rule=rule),
        serving(valkey_url) as router,
        Redis.from_url(valkey_url) as redis,
    ):
        await router.ready("a")
        await ask(router, asking(CAT, text="x" * 1000))
        await ask(router, asking(CAT, text="x" * 1000))
        data = base64.b64decode(CAT.partition(",")[2])
        kept = [dump async for key in redis.scan_iter() if (dump := await redis.dump(key))]
        assert sum(map(len, kept)) < 20_000
        for at in range(0, len(data) - 8, 997):
            assert not any(data[at : at + 8] in dump for dump in kept)


async def test_a_request_with_images_is_no_source_of_hot_prefixes(valkey_url: str) -> None:
    """They keep whole bodies."""
    async with Replica(valkey_url, "a", **RATES, image_rule=FIXED), serving(valkey_url) as router:
        await router.ready("a")
        await ask(router, asking(CAT, text="x" * 1000))

        async def kept() -> float:
            await ask(router, asking(text="y" * 1000))
            return await router.metric("pando_router_hot_prefix_bytes")

        await until(kept, "a kept text")
        assert await kept() < len(CAT) / 10


async def test_a_tenants_tokens_count_images(valkey_url: str, tmp_path: Any) -> None:
    file = key_file(tmp_path, t={"tokens_per_minute": 900})
    async with (
        Replica(valkey_url, "a", **RATES, image_rule=FIXED) as a,
        guarded(valkey_url, file, a, expected_output_tokens=1) as router,
    ):
        asked = [
            await router.post("/v1/chat/completions", asking(CAT), **bearer("t")) for _ in range(2)
        ]
        assert [answer.status for answer in asked] == [200, 429]


def test_the_body_of_a_request_is_no_larger_once_its_images_have_tokens() -> None:
    """The room of many images is bounded."""
    body = json.dumps(asking(*[CAT[:100]] * 10_000)).encode()
    request = ENDPOINTS["/v1/chat/completions"].parse(body)
    largest = ImageRule(kind="fixed", tokens=1 << 30)
    assert len(request.with_image_tokens(largest).prefix) < 4 << 20
