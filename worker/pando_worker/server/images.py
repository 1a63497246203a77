"""The images and videos of a conversation: read, and placed in its prompt."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pando_worker.messages import PromptImage, Raw, SentArray
from pando_worker.server.errors import ApiError, bad_request, unavailable
from pando_worker.server.protocol.chats.chat import ChatMessage, ImagePart, VideoPart
from pando_worker.vision.errors import ImageError, ImagesUnavailableError

if TYPE_CHECKING:  # Pillow takes time to import, and most models read text only
    from pando_worker.reading.array_file import Array
    from pando_worker.vision.processed import Place, Processed
    from pando_worker.vision.reader import ImageReader

SeenPart = ImagePart | VideoPart

RequestPart = tuple[str, SeenPart]
"""With the name of its field in the request."""

_IMAGE, _VIDEO = "image_url", "video_url"  # types of parts


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

    async def read(self, parts: Sequence[RequestPart], param: str) -> "Seen":
        """Images and videos of a request.

        Args:
            param: the request's field that has them all

        Raises:
            ApiError: 400 for one that cannot be used, 503 if none can be read now.
        """
        self._check(parts, param)
        return Seen(self.place, self.reader.video_place, param, await self._read(parts))

    def _check(self, parts: Sequence[RequestPart], param: str) -> None:
        """Raises ApiError 400 for videos that the model does not see, and for too many parts."""
        videos = [param for param, part in parts if part["type"] == _VIDEO]
        if videos and self.reader.video_place is None:
            raise bad_request(
                f"{videos[0]} is a video, but {self.model!r} reads text and images only", videos[0]
            )
        if len(parts) > self.most:
            what = "images and videos" if videos else "images"
            raise bad_request(
                f"there are {len(parts)} {what} in {param}; this worker accepts {self.most}", param
            )

    async def _read(self, parts: Sequence[RequestPart]) -> "list[tuple[str, list[Processed]]]":
        reads = [self._read_one(part) for _, part in parts]
        found = await asyncio.gather(*reads, return_exceptions=True)
        images: list[tuple[str, list[Processed]]] = []
        for (param, part), image in zip(parts, found, strict=True):
            match image:
                case ImageError():
                    code = "invalid_video" if part["type"] == _VIDEO else "invalid_image"
                    raise bad_request(f"{param} {image}", param, code) from image
                case ImagesUnavailableError():
                    raise unavailable(f"{image}; try again later", "images_unavailable") from image
                case BaseException():
                    raise image
            images.append((part["type"], image))
        return images

    async def _read_one(self, part: SeenPart) -> "list[Processed]":
        """An image, in one or several views, or the frames of a video."""
        if part["type"] == "video_url":
            return await self.reader.read_video(part["video_url"]["url"])
        image = part["image_url"]
        return await self.reader.read(image["url"], small=image.get("detail") == "low")


@dataclass(frozen=True, slots=True)
class Seen:
    """The images and videos of a request, as they go into its prompt.

    Attributes:
        place: of an image
        video_place: of a video; None if the model sees none
        param: the request's field that has them all
        parts: the type of each image and video, and its views or frames
    """

    place: "Place"
    video_place: "Place | None"
    param: str
    parts: "list[tuple[str, list[Processed]]]"

    def surrounded(self, prompt: str) -> str:
        """The prompt's text with what the model's processor puts around images."""
        further = [views[0].before for kind, views in self.parts if kind == _IMAGE]
        return self.place.surrounded(prompt, further)

    def filled(self, token_ids: list[int]) -> ChatPrompt:
        """The prompt with the tokens of its images and videos in their places.

        Raises:
            ApiError: 400 for text with more or fewer such places.
        """
        video = self.video_place
        kinds = {self.place.token: _IMAGE} | ({video.token: _VIDEO} if video else {})
        places = [at for at, one in enumerate(token_ids) if one in kinds]
        if [kinds[token_ids[at]] for at in places] != [kind for kind, _ in self.parts]:
            what = "images and videos" if video else "images"
            raise bad_request(
                f"the prompt has {len(places)} places for {what}, but there are"
                f" {len(self.parts)} in {self.param}: the model's image token {self.place.text!r}"
                " must stand in the text for nothing else",
                self.param,
            )
        return _placed(token_ids, places, [seen for _, seen in self.parts], self.place.token)


def unseen(part: RequestPart, model: str) -> ApiError:
    """What refuses an image or a video for a model that reads text only."""
    param, seen = part
    what = "a video" if seen["type"] == _VIDEO else "an image"
    return bad_request(f"{param} is {what}, but {model!r} reads text only", param)


def parts_of(messages: Sequence[ChatMessage]) -> list[RequestPart]:
    """All images and videos of a conversation."""
    return [
        (f"messages[{i}].content[{j}].{part['type']}", part)
        for i, message in enumerate(messages)
        if isinstance(content := message.get("content"), list)
        for j, part in enumerate(content)
        if part["type"] != "text"
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


def sent(array: "Array") -> SentArray:
    """An array as the scheduler gets it: not a copy."""
    return SentArray(array.dtype.str, array.shape, Raw(array.data.cast("B")))
