"""Prompts with images as the HTTP process sends them to the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from PIL import Image
from torch import Tensor

from pando_worker.messages import Generate, PromptImage, SamplingParams
from pando_worker.server.images import ChatPrompt, Sight, parts_of, sent
from pando_worker.server.protocol.chats.chat import ChatMessage, messages_of
from pando_worker.server.text.tokenizer import Tokenizer
from pando_worker.vision.processed import Place, Processed
from pando_worker.vision.processing import ImageProcessor
from tests.worker.scheduler.world import World
from tests.worker.vision.checkpoints import IMAGE, Seer
from tests.worker.vision.photographs import photograph


@dataclass(frozen=True)
class Asked:
    """A prompt with the image token in the place of each photograph."""

    seer: Seer
    text: str
    names: tuple[str, ...] = ()
    small: bool = field(default=False, kw_only=True)  # with little `detail`

    @cached_property
    def pictures(self) -> list[Image.Image]:
        return [photograph(name) for name in self.names]

    @cached_property
    def images(self) -> tuple[PromptImage, ...]:
        found, start = [], 0
        for picture in self.pictures:
            for one in self.seer.ours.process(picture, small=self.small):
                start = self.ids.index(self.seer.image_token, start)
                found.append(
                    PromptImage(
                        digest=one.digest,
                        start=start,
                        length=one.length,
                        arrays={name: sent(array) for name, array in one.arrays.items()},
                        grid=one.grid,
                    )
                )
                start += one.length
        return tuple(found)

    @cached_property
    def ids(self) -> list[int]:
        return [int(token) for token in self._inputs["input_ids"][0]]

    @cached_property
    def _inputs(self) -> Any:
        return self.seer.inputs(self.text, self.pictures)

    @cached_property
    def _greedy(self) -> list[int]:
        """As many tokens as were asked for so far."""
        return []

    def greedy(self, count: int) -> list[int]:
        """What transformers continues it with."""
        known = self._greedy
        while len(known) < count:
            known.append(int(self.logits(known)[-1].argmax()))
        return known[:count]

    def logits(self, output: Sequence[int] = ()) -> Tensor:
        """By transformers, after each token of the prompt and `output`, [num_tokens,
        vocab_size]."""
        return self.seer.logits_of(self._inputs, output)

    def send(
        self, world: World, rid: str, count: int, *, output: Sequence[int] = (), **changes: object
    ) -> None:
        """Ask for `count` tokens; as a resumed request, which has had `output` already."""
        values: dict[str, object] = {
            "rid": rid,
            "input_ids": [*self.ids, *output],
            "num_output": len(output),
            "images": self.images,
            "sampling": SamplingParams(max_new_tokens=count, temperature=0),
        }
        world.tokens[rid] = []
        world.collect(world.scheduler.receive(Generate(**(values | changes))))  # type: ignore[arg-type]


@dataclass(frozen=True)
class PhotographReader:
    """An `ImageReader` whose URLs are photographs' names."""

    processor: ImageProcessor
    video_place: None = None

    @property
    def place(self) -> Place:
        return self.processor.place

    async def read(self, url: str, *, small: bool = False) -> list[Processed]:
        return self.processor.process(photograph(url), small=small)


async def chat_prompt(seer: Seer, messages: Sequence[ChatMessage]) -> ChatPrompt:
    """What the HTTP process makes of a conversation whose images' URLs are photographs' names."""
    sight = Sight(PhotographReader(seer.ours), most=5, model="")  # type: ignore[arg-type]
    tokenizer = Tokenizer(seer.path)
    try:
        seen = await sight.read(parts_of(messages), "messages")
        prompt = await tokenizer.encode_chat(
            messages_of(messages, tokenizer.chat_template or "", as_parts=True),
            edit=seen.surrounded,
        )
        return seen.filled(prompt.token_ids)
    finally:
        tokenizer.close()


def text_with(*parts: str) -> str:
    return f"{IMAGE}\n".join(parts)
