"""The images of a conversation: read, and placed in its prompt."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pando_worker.messages import ImageArray, PromptImage
from pando_worker.server.errors import bad_request, unavailable
from pando_worker.server.protocol.chat import ChatMessage, ImagePart
from pando_worker.vision.errors import ImageError, ImagesUnavailableError

if TYPE_CHECKING:  # Pillow takes time to import, and most models read text only
    from pando_worker.vision.processing import Array, Place, Processed
    from pando_worker.vision.reader import ImageReader


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    token_ids: list[int]
    images: tuple[PromptImage, ...] = ()

    @property
    def image_tokens(self) -> int:
        return sum(image.length for image in self.images)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a model that sees has beside one that reads text only.

    Attributes:
        most: images in a request
    """

    reader: "ImageReader"
    most: int

    @property
    def place(self) -> "Place":
        """Of an image, in the prompts that its chat template makes.

        Raises:
            ApiError: 503 while the processor loads.
        """
        if self.reader.place is None:
            raise unavailable("the image processor is still loading", "model_loading")
        return self.reader.place

    async def fill(self, token_ids: list[int], messages: Sequence[ChatMessage]) -> ChatPrompt:
        """A prompt with the tokens of its images in their places.

        Raises:
            ApiError: 400 for an image that cannot be used, 503 if none can be read now.
        """
        parts = _image_parts(messages)
        if len(parts) > self.most:
            raise bad_request(
                f"messages have {len(parts)} images; this worker accepts {self.most}", "messages"
            )
        places = [at for at, token in enumerate(token_ids) if token == self.place.token]
        if len(places) != len(parts):
            raise bad_request(
                f"the prompt has {len(places)} places for images, but messages have {len(parts)}:"
                " text must not contain the model's image token",
                "messages",
            )
        return _placed(token_ids, places, await self._read(parts))

    async def _read(self, parts: Sequence[tuple[str, ImagePart]]) -> "list[Processed]":
        reads = [
            self.reader.read(part.image_url.url, small=part.image_url.detail == "low")
            for _, part in parts
        ]
        found = await asyncio.gather(*reads, return_exceptions=True)
        images = []
        for (param, _), image in zip(parts, found, strict=True):
            match image:
                case ImageError():
                    raise bad_request(f"{param} {image}", param, "invalid_image") from image
                case ImagesUnavailableError():
                    raise unavailable(f"{image}; try again later", "images_unavailable") from image
                case BaseException():
                    raise image
            images.append(image)
        return images


def refuse_images(messages: Sequence[ChatMessage], model: str) -> None:
    """Raises ApiError 400 if there are any."""
    for param, _ in _image_parts(messages):
        raise bad_request(f"{param} is an image, but {model!r} reads text only", param)


def _image_parts(messages: Sequence[ChatMessage]) -> list[tuple[str, ImagePart]]:
    """All images with the names of their fields."""
    return [
        (f"messages[{i}].content[{j}].image_url", part)
        for i, message in enumerate(messages)
        if isinstance(message.content, list)
        for j, part in enumerate(message.content)
        if isinstance(part, ImagePart)
    ]


def _placed(
    token_ids: list[int], places: Sequence[int], images: "Sequence[Processed]"
) -> ChatPrompt:
    ids: list[int] = []
    placed: list[PromptImage] = []
    done = 0
    for place, image in zip(places, images, strict=True):
        ids += token_ids[done:place]
        placed.append(
            PromptImage(
                digest=image.digest,
                start=len(ids) + image.first,
                length=image.length,
                arrays={name: sent(array) for name, array in image.arrays.items()},
                grid=image.grid,
            )
        )
        ids += image.token_ids
        done = place + 1
    return ChatPrompt(ids + token_ids[done:], tuple(placed))


def sent(array: "Array") -> ImageArray:
    """An array as the scheduler gets it."""
    return ImageArray(array.dtype.str, array.shape, array.tobytes())
