"""Images among the canonical bytes of a prompt.

There an image is a digest, which a few bytes hold. But chunks of canonical bytes stand for tokens:
a replica's tree is as large as its cache, and a match of so many chunks is a match of so many
tokens. So once its tokens are known, an image gets as many bytes as a text with that many tokens
would have (`with_room`). Then 2,000 tokens of an image weigh as much as 2,000 tokens of text.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pando_fleet.images.film import Film
from pando_fleet.images.rule import ImageRule
from pando_fleet.images.size import Size

TOKEN_BYTES = 4
"""Bytes of a token of an image. A constant, unlike that of text, because keys depend on it."""

MOST_IMAGES = 256
"""Images of a prompt that have a size and tokens; further ones are digests only."""

MOST_TOKENS = 1 << 19
"""Of all images of a prompt together, which bounds the bytes: a longer path has no keys."""

ROOM = b"\xc0"
"""Fills an image's room. UTF-8 does not contain it, and it is none of the marks in `canonical`."""


class PrefixImage(NamedTuple):
    """An image, a video or a sound."""

    end: int  # the place after its digest, in the canonical bytes
    size: Size | None  # None if unknown
    is_low: bool = False  # the client wants little `detail`
    tokens: int = 0  # estimated; 0 before `counted`
    pieces: int = 0  # that make the bytes up to `end`: the next image's end is counted from there
    film: Film | None = None  # of a video
    seconds: float | None = None  # of a sound


def counted(images: Sequence[PrefixImage], rule: ImageRule) -> tuple[PrefixImage, ...]:
    """The images with their tokens."""
    found, left = [], MOST_TOKENS
    for image in images:
        tokens = min(left, _tokens(image, rule))
        left -= tokens
        found.append(image._replace(tokens=tokens))
    return tuple(found)


def _tokens(image: PrefixImage, rule: ImageRule) -> int:
    if image.seconds is not None:
        return rule.sounds.tokens_of(image.seconds) if rule.sounds else 0
    if image.film is not None:
        return rule.films.tokens_of(image.film) if rule.films else 0
    return rule.tokens_of(image.size, is_low=image.is_low)


def with_room(data: bytes, images: Sequence[PrefixImage]) -> bytes:
    """Canonical bytes with TOKEN_BYTES more for each token of an image, after its digest."""
    parts: list[bytes] = []
    done = 0
    for image in images:
        parts += (data[done : image.end], ROOM * (TOKEN_BYTES * image.tokens))
        done = image.end
    parts.append(data[done:])
    return b"".join(parts)
