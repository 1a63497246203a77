"""Images of a trace's requests: `"images": [[width, height, hash], ...]`.

A trace has no pixels. Equal hashes mean equal images, and a model's rule makes tokens of width and
height. In the prompt's bytes an image stands as in a router's: a digest, followed by the room of
its tokens.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from pando_fleet.canonical.images import IMAGES, add_image
from pando_fleet.canonical.marks import OPAQUE
from pando_fleet.images.in_prefix import ROOM, TOKEN_BYTES, PrefixImage, counted, with_room
from pando_fleet.images.rule import ImageRule
from pando_fleet.images.size import Size
from pando_sim.traces.prompts import Tokenize, mix_one, tokens_of

Side = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
TraceImage = tuple[Side, Side, str | int]
"""Width and height in pixels, and what tells it from other images."""

_IN_BYTES = re.compile(OPAQUE + rb"((?:sound)?[0-9a-f]{32})(" + ROOM + rb"{4,})")


class ImagesError(ValueError):
    """The images do not fit the prompt, or nothing says how many tokens they have."""


def placed(messages: object, images: Sequence[TraceImage]) -> tuple[Any, bool]:
    """The messages with the trace's images in the places of their own, in this order; and whether
    they have any.

    Raises ImagesError if they have more or fewer.
    """
    left = list(images)
    found = 0

    def part(one: Any) -> Any:
        nonlocal found
        if not isinstance(one, dict) or one.get("type") not in IMAGES:
            return one
        found += 1
        return _part(left.pop(0)) if left else one

    def message(one: Any) -> Any:
        if isinstance(one, dict) and isinstance(one.get("content"), list):
            return one | {"content": [part(each) for each in one["content"]]}
        return one

    replaced = [message(one) for one in messages] if isinstance(messages, list) else messages
    if found and found != len(images):
        raise ImagesError(f"has {found} parts that are images, but `images` lists {len(images)}")
    return replaced, found > 0


def in_front(images: Sequence[TraceImage]) -> tuple[bytes, list[PrefixImage]]:
    """The bytes of images at the beginning of a prompt, without room, and their places."""
    out: list[bytes] = []
    found: list[PrefixImage] = []
    for image in images:
        add_image(out, found, _part(image))
    return b"".join(out), found


def roomy(
    data: bytes,
    found: Sequence[PrefixImage],
    images: Sequence[TraceImage],
    rule: ImageRule | None,
) -> bytes:
    """Canonical bytes with the room of their images' tokens. The trace's sizes replace those that
    were `found` in headers.

    Raises ImagesError if the trace has images, but no rule gives them tokens.
    """
    if rule is None:
        if images:
            raise ImagesError("has images, and no --image-rule says how many tokens they have")
        return data
    if images:
        if not rule.tokens_of(None):
            raise ImagesError("has images, and --image-rule gives them no tokens")
        given = (Size(width, height) for width, height, _ in images)
        found = [one._replace(size=size) for one, size in zip(found, given, strict=False)]
    return with_room(data, counted(found, rule))


class ImageTokenizer:
    """Tokens of canonical bytes with images and sounds, each of which has the tokens that its room
    stands for. Can be pickled if `text` can."""

    def __init__(self, text: Tokenize) -> None:
        self._text = text

    def __call__(self, data: bytes) -> NDArray[np.int32]:
        parts, done = [], 0
        for image in _IN_BYTES.finditer(data):
            if before := data[done : image.start()]:
                parts.append(self._text(before))
            places = np.arange(len(image[2]) // TOKEN_BYTES, dtype=np.uint64)
            parts.append(tokens_of(mix_one(xxh3_64_intdigest(image[1])), places))
            done = image.end()
        if rest := data[done:]:
            parts.append(self._text(rest))
        return np.concatenate(parts) if parts else self._text(b"")


def _part(image: TraceImage) -> dict[str, object]:
    return {"type": "image_url", "image_url": f"trace:{image[2]}"}
