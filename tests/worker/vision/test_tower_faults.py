"""An exception inside the vision tower ends the requests whose images it concerns, and no other."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from pando_worker.batch import PixelValues
from pando_worker.models.transformers_backend.tower import VisionTower
from tests.examples import examples
from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.engines import Worlds, engines_with
from tests.worker.vision.families import save_llava_next
from tests.worker.vision.photographs import data_url, encoded
from tests.worker.vision.prompts import Asked, text_with
from tests.worker.vision.ways import WAYS, Way

COUNT = 6


class Faulty:
    """A tower that fails in a batch with one of some images."""

    def __init__(self) -> None:
        self.digests: frozenset[bytes] = frozenset()
        self._encode = VisionTower.encode

    def encode(self, tower: VisionTower, images: Sequence[PixelValues]) -> list[Tensor]:
        if any(image.digest in self.digests for image in images):
            raise RuntimeError("an injected fault")
        return self._encode(tower, images)


@pytest.fixture(scope="module")
def asked(llava: Seer) -> dict[str, Asked]:
    return {
        "text": Asked(llava, text_with("the quick brown fox")),
        "well": Asked(llava, text_with("a ", " fox"), ("coffee.png",)),
        "ill": Asked(llava, text_with("the ", " brown"), ("chelsea.png",)),
        "both": Asked(llava, text_with("", " and ", "?"), ("coffee.png", "chelsea.png")),
    }


@pytest.fixture(scope="module")
def worlds(llava: Seer) -> Iterator[Worlds]:
    with engines_with(llava) as worlds:
        yield worlds


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, worlds: Worlds) -> Faulty:
    faulty = Faulty()
    monkeypatch.setattr(VisionTower, "encode", lambda tower, images: faulty.encode(tower, images))
    return faulty


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(names=st.permutations(["text", "well", "ill", "both"]), way=WAYS)
def test_others_go_on_and_every_page_is_free_again(
    worlds: Worlds, faulty: Faulty, asked: dict[str, Asked], names: list[str], way: Way
) -> None:
    """Wherever a prompt is cut and whatever is in flight. Images of equal shape are one batch, so a
    step of its own is what keeps "well" apart from the others; later, the same prompts succeed."""
    world = worlds(
        image_tokens=way.kept,
        image_tokens_per_step=1,
        chunked_prefill_size=way.chunk * 4,
        overlap_schedule=way.overlap,
    )
    faulty.digests = frozenset(image.digest for image in asked["ill"].images)
    for name in names:
        asked[name].send(world, name, COUNT)
        world.check_ownership()
        if not way.together:
            world.run()
    while not world.scheduler.is_idle:
        world.step()
        world.check_ownership()
    assert {name: reject.status for name, reject in world.rejected.items()} == {
        "ill": 500,
        "both": 500,
    }
    for name in ("text", "well"):
        assert world.tokens[name] == asked[name].greedy(COUNT), name
    faulty.digests = frozenset()
    for name in names:
        asked[name].send(world, f"{name} again", COUNT)
    world.run()
    for name in names:
        assert world.tokens[f"{name} again"] == asked[name].greedy(COUNT), name
    world.check_ownership()


def test_the_images_of_one_tower_batch_fail_together(
    worlds: Worlds, faulty: Faulty, asked: dict[str, Asked], caplog: pytest.LogCaptureFixture
) -> None:
    """In one step with text, which goes on; the log says what happened."""
    world = worlds()
    faulty.digests = frozenset(image.digest for image in asked["ill"].images)
    with caplog.at_level(logging.ERROR):
        for name in ("well", "ill", "text"):
            asked[name].send(world, name, COUNT)
        world.run()
    assert set(world.rejected) == {"well", "ill"}
    assert "vision tower" in world.rejected["ill"].message
    assert world.tokens["text"] == asked["text"].greedy(COUNT)
    (record,) = caplog.records
    assert record.getMessage() == "the vision tower failed on 2 images"
    assert record.exc_info


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """Its config.json has another canvas for tall images than its processor: the trial's image does
    not show it."""
    path = save_llava_next(tmp_path_factory.mktemp("llava-next"))
    config = json.loads((path / "config.json").read_text())
    config["image_grid_pinpoints"] = [[28, 56], [84, 28], [56, 56]]
    (path / "config.json").write_text(json.dumps(config))
    with WorkerProcess.start(
        stand_in=False, model=str(path), served_model_name="m", threads=1, cpu_kernels="off"
    ) as worker:
        yield worker


@pytest.mark.e2e
@pytest.mark.long
async def test_a_worker_answers_500_and_serves_on(worker: WorkerProcess) -> None:
    """Chats with a tall image, beside others, in the form of the API."""

    async def ask(client: openai.AsyncOpenAI, size: tuple[int, int]) -> int:
        url = data_url(encoded(Image.new("RGB", size, (200, 30, 10)), "PNG"))
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}]
        try:
            done = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": content}],  # type: ignore[list-item,misc]
                max_tokens=COUNT,
                n=2,
            )
        except openai.InternalServerError as error:
            assert isinstance(error.body, dict)
            assert error.body["type"] == "server_error"
            assert "vision tower failed" in error.body["message"]
            return error.status_code
        assert len(done.choices) == 2
        return 200

    async with worker.client() as client:
        sizes = [(80, 60), (50, 100), (90, 60), (60, 120)]
        found = await asyncio.gather(*[ask(client, size) for size in sizes])
        assert found == [200, 500, 200, 500]
        assert await ask(client, (80, 60)) == 200
