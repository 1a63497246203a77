"""Images by OpenAI's and Anthropic's own libraries: one image, whichever API carries it."""

import base64
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI

from pando_fleet.images.rule import ImageRule
from tests.router.admission.gate import no_lease_is_left
from tests.router.endpoints.test_client_libraries import (
    anthropic_client,
    openai_client,
    say_message,
    say_response,
)
from tests.router.world import Replica, RouterClient, serving
from tests.worker.vision.photographs import data_url, path

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

RATES: dict[str, Any] = {"prefill_tokens_per_s": 1000.0, "capacity_tokens": 1_000_000}
CAT = path("chelsea.png").read_bytes()
LINK = "https://pictures.example/cat.png"
RULE = ImageRule(kind="grid", cell=28, min_pixels=3136, max_pixels=12_845_056)


async def chat(client: AsyncOpenAI, url: str) -> str:
    image: Any = {"type": "image_url", "image_url": {"url": url}}
    raw = await client.chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": [image]}]
    )
    return raw.headers["x-request-id"]


async def respond(client: AsyncOpenAI, url: str) -> str:
    image: Any = {"type": "input_image", "image_url": url, "detail": "auto"}
    raw = await client.responses.with_raw_response.create(
        model="m", input=[{"role": "user", "content": [image]}]
    )
    return raw.headers["x-request-id"]


async def message(client: "AsyncAnthropic", source: Any) -> str:
    raw = await client.messages.with_raw_response.create(
        model="m",
        max_tokens=9,
        messages=[{"role": "user", "content": [{"type": "image", "source": source}]}],
    )
    return raw.headers["x-request-id"]


async def why(router: RouterClient, request_id: str) -> Any:
    return (await router.get(f"/route/explain?request_id={request_id}")).json["tries"][0]


async def test_an_image_is_the_same_in_chats_responses_and_messages(
    valkey_url: str, anthropic: Any
) -> None:
    encoded = {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(CAT).decode(),
    }
    async with (
        Replica(valkey_url, "a", **RATES, image_rule=RULE) as a,
        Replica(valkey_url, "b", **RATES, image_rule=RULE) as b,
        serving(valkey_url) as router,
        openai_client(router) as openai,
        anthropic_client(anthropic, router) as messages,
    ):

        async def placed(request_id: str) -> Any:
            await no_lease_is_left(valkey_url)  # so the next request finds idle replicas
            return await why(router, request_id)

        await router.ready("a", "b")
        first = await placed(await chat(openai, data_url(CAT)))
        a.answer = b.answer = say_response
        second = await placed(await respond(openai, data_url(CAT)))
        a.answer = b.answer = say_message
        third = await placed(await message(messages, encoded))
        linked = await placed(await message(messages, {"type": "url", "url": LINK}))
        a.answer = b.answer = say_response
        again = await placed(await respond(openai, LINK))
    for one in (first, second, third):
        assert one["images"] == ["image, 176 tokens (451 x 300 pixels)"]
        assert one["chosen"] == first["chosen"]
    assert first["predicted_tokens"] == 0
    assert second["predicted_tokens"] == third["predicted_tokens"] == 128  # its whole chunks
    assert linked["images"] == again["images"] == ["image, 999 tokens"]
    assert linked["predicted_tokens"] == 0
    assert again["predicted_tokens"] > 900
