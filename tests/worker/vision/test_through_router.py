"""Images through a router and a worker: the router knows how many tokens they have."""

from typing import Any

import pytest

from tests.router.world import serving
from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.photographs import data_url, path

pytestmark = pytest.mark.e2e

JSON = {"content-type": "application/json"}
PATH = "/v1/chat/completions"


def asking(url: str, *further: str) -> dict[str, Any]:
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}}]
    parts.append({"type": "text", "text": "the brown fox?"})
    roles = ("assistant", "user")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(further)]
    messages = [{"role": "user", "content": parts}, *turns]
    return {"model": "llava", "messages": messages, "max_tokens": 2, "temperature": 0}


async def test_a_routers_estimate_is_what_the_worker_counts(llava: Seer, valkey_url: str) -> None:
    url = data_url(path("chelsea.png").read_bytes())
    with WorkerProcess.start(
        stand_in=False,
        model=str(llava.path),
        served_model_name="llava",
        redis=valkey_url,
        replica="w",
        threads=1,
        cpu_kernels="off",
        page_size=4,
    ):
        async with serving(valkey_url) as router:
            await router.ready("w")
            explained = await router.post(f"/route/explain?path={PATH}", asking(url))
            first = await router.post(PATH, asking(url), **JSON)
            again = await router.post(PATH, asking(url.rstrip("="), "over", "jumps?"), **JSON)
    assert first.status == 200, first.body
    usage = first.json["usage"]
    counted = usage["prompt_tokens_details"]["image_tokens"]
    assert explained.json["images"] == [f"image, {counted} tokens (451 x 300 pixels)"]
    assert explained.json["prompt_tokens"] == pytest.approx(usage["prompt_tokens"], abs=12)
    assert again.json["usage"]["prompt_tokens_details"]["cached_tokens"] > counted
