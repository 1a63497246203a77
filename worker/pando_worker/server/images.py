"""The images and videos of a conversation: read, and placed in its prompt."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pando_worker.messages import ImageArray, PromptImage, Raw
from pando_worker.server.errors import bad_request, unavailable
from pando_worker.server.protocol.chat import ChatMessage, ImagePart, TextPart, VideoPart
from pando_worker.vision.errors import ImageError, ImagesUnavailableError

if TYPE_CHECKING:  # Pillow takes time to import, and most models read text only
    from pando_worker.vision.processed import Array, Place, Processed
    from pando_worker.vision.reader import ImageReader

SeenPart = ImagePart | VideoPart


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """
    Attributes:
        images: also the frames of videos
        image_tokens, video_tokens: that stand for images, and for frames
    """

    token_ids: list[int]
    images: tuple[PromptImage, ...] = ()
    image_tokens: int = 0
    video_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Sight:
    """What a model that sees has beside one that reads text only.

    Attributes:
        most: images and videos in a request
        model: its name
    """

    reader: "ImageReader"
    most: int
    model: str

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
        """A prompt with the tokens of its images and videos in their places.

        Raises:
            ApiError: 400 for one that cannot be used, 503 if none can be read now.
        """
        parts = _seen_parts(messages)
        self._check(parts)
        token, video = self.place.token, self.reader.video_place
        kinds = {token: ImagePart} | ({video.token: VideoPart} if video else {})
        places = [at for at, one in enumerate(token_ids) if one in kinds]
        if [kinds[token_ids[at]] for at in places] != [type(part) for _, part in parts]:
            what = "images and videos" if video else "images"
            raise bad_request(
                f"the prompt has {len(places)} places for {what}, but messages have {len(parts)}:"
                " text must not contain the model's image token",
                "messages",
            )
        return _placed(token_ids, places, await self._read(parts), token)

    def _check(self, parts: Sequence[tuple[str, SeenPart]]) -> None:
        """Raises ApiError 400 for videos that the model does not see, and for too many parts."""
        videos = [param for param, part in parts if isinstance(part, VideoPart)]
        if videos and self.reader.video_place is None:
            raise bad_request(
                f"{videos[0]} is a video, but {self.model!r} reads text and images only", videos[0]
            )
        if len(parts) > self.most:
            what = "images and videos" if videos else "images"
            raise bad_request(
                f"messages have {len(parts)} {what}; this worker accepts {self.most}", "messages"
            )

    async def _read(self, parts: Sequence[tuple[str, SeenPart]]) -> "list[list[Processed]]":
        reads = [self._read_one(part) for _, part in parts]
        found = await asyncio.gather(*reads, return_exceptions=True)
        images = []
        for (param, part), image in zip(parts, found, strict=True):
            match image:
                case ImageError():
                    code = "invalid_video" if isinstance(part, VideoPart) else "invalid_image"
                    raise bad_request(f"{param} {image}", param, code) from image
                case ImagesUnavailableError():
                    raise unavailable(f"{image}; try again later", "images_unavailable") from image
                case BaseException():
                    raise image
            images.append(image)
        return images

    async def _read_one(self, part: SeenPart) -> "list[Processed]":
        """An image, or the frames of a video."""
        if isinstance(part, VideoPart):
            return await self.reader.read_video(part.video_url.url)
        url = part.image_url
        return [await self.reader.read(url.url, small=url.detail == "low")]


def refuse_images(messages: Sequence[ChatMessage], model: str) -> None:
    """Raises ApiError 400 if there are any."""
    for param, part in _seen_parts(messages):
        what = "a video" if isinstance(part, VideoPart) else "an image"
        raise bad_request(f"{param} is {what}, but {model!r} reads text only", param)


def _seen_parts(messages: Sequence[ChatMessage]) -> list[tuple[str, SeenPart]]:
    """All images and videos with the names of their fields."""
    return [
        (f"messages[{i}].content[{j}].{part.type}", part)
        for i, message in enumerate(messages)
        if isinstance(message.content, list)
        for j, part in enumerate(message.content)
        if not isinstance(part, TextPart)
    ]


def _placed(
    token_ids: list[int],
    places: Sequence[int],
    seen: "Sequence[Sequence[Processed]]",
    image_token: int,
) -> ChatPrompt:
    """
    Args:
        seen: in each place, whose token they replace
        image_token: in the places of images, not of videos
    """
    ids: list[int] = []
    placed: list[PromptImage] = []
    tokens = {True: 0, False: 0}  # of images, of videos
    done = 0
    for place, images in zip(places, seen, strict=True):
        ids += token_ids[done:place]
        for image in images:
            placed.append(prompt_image(image, len(ids)))
            tokens[token_ids[place] == image_token] += image.length
            ids += image.token_ids
        done = place + 1
    return ChatPrompt(ids + token_ids[done:], tuple(placed), tokens[True], tokens[False])


def prompt_image(image: "Processed", start: int) -> PromptImage:
    """As the scheduler gets it.

    Args:
        start: of its tokens in the prompt, of which the first ones may be text
    """
    return PromptImage(
        digest=image.digest,
        start=start + image.first,
        length=image.length,
        arrays={name: sent(array) for name, array in image.arrays.items()},
        grid=image.grid,
        time=image.time,
        is_continued=image.is_continued,
    )


def sent(array: "Array") -> ImageArray:
    """An array as the scheduler gets it: not a copy."""
    return ImageArray(array.dtype.str, array.shape, Raw(array.data.cast("B")))
