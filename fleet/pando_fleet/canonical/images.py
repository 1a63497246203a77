"""Parts that are images or videos, as a digest of what they show.

An image in base64 counts by its bytes: in whichever API and spelling they come, and whatever media
type is claimed, since engines look at the bytes. One that a URL or a file's id names counts by that
name.
"""

from collections.abc import Callable
from typing import TypeVar

from xxhash import xxh3_128

from pando_fleet.canonical.marks import OPAQUE, json_bytes, without
from pando_fleet.images.data_url import base64_of, canonical_base64, decoded
from pando_fleet.images.film import UNKNOWN_FILM, film_of
from pando_fleet.images.in_prefix import MOST_IMAGES, PrefixImage
from pando_fleet.images.size import Read, image_size

T = TypeVar("T")

VIDEO = "video_url"
"""The type of a part that is a video, in chats of vLLM and SGLang."""

IMAGES = frozenset(["image_url", "input_image", "image", VIDEO])
"""Types of such parts: OpenAI's chats and responses, Anthropic's messages, and videos."""

_AROUND = frozenset(["type", "image_url", "source", "cache_control", "detail"])
_AROUND_VIDEO = frozenset(["type", VIDEO, "cache_control"])
_AROUND_URL = frozenset(["url", "detail"])
_AS_USUAL = (None, "auto")  # of `detail`


def add_image(out: list[bytes], images: list[PrefixImage], part: dict[str, object]) -> None:
    """Adds the digest of a part to the canonical bytes, and what is known of it to `images`."""
    is_video = part.get("type") == VIDEO
    data, said = _video(part) if is_video else _data(part)
    digest, size, film = xxh3_128(), None, UNKNOWN_FILM if is_video else None
    if data is not None:
        digest.update(data)
        if len(images) < MOST_IMAGES:
            if is_video:
                film = _found(film_of, data) or UNKNOWN_FILM
            else:
                size = _found(image_size, data)
    if said:
        digest.update(json_bytes(said))
    out += (OPAQUE, digest.hexdigest().encode())
    if len(images) < MOST_IMAGES:
        is_low = said.get("detail") == "low"
        before = images[-1] if images else PrefixImage(0, None)
        end = before.end + sum(map(len, out[before.pieces :]))
        images.append(PrefixImage(end, size, is_low, pieces=len(out), film=film))


def _data(part: dict[str, object]) -> tuple[bytes | None, dict[str, object]]:
    """Its canonical base64, or None; and whatever else the part says."""
    said = without(part, _AROUND)
    detail, url = part.get("detail"), part.get("image_url")
    if isinstance(url, dict):
        detail = url.get("detail", detail)
        said |= without(url, _AROUND_URL)
        url = url.get("url")
    if detail not in _AS_USUAL:
        said["detail"] = detail
    source = part.get("source")
    if isinstance(source, dict):
        match source.get("type"), source.get("data"), source.get("url"):
            case "base64", str() as text, _:
                return canonical_base64(text), said
            case "url", _, str() as link:
                url = link
            case _:
                said["source"] = source
    elif source:
        said["source"] = source
    if isinstance(url, str) and (data := base64_of(url)) is not None:
        return data, said
    if url:
        said["url"] = url
    return None, said


def _video(part: dict[str, object]) -> tuple[bytes | None, dict[str, object]]:
    """As `_data`."""
    said = without(part, _AROUND_VIDEO)
    said["type"] = VIDEO  # the same bytes are another thing as an image
    url = part.get(VIDEO)
    if isinstance(url, dict):
        said |= without(url, _AROUND_URL)
        url = url.get("url")
    if isinstance(url, str) and (data := base64_of(url)) is not None:
        return data, said
    if url:
        said["url"] = url
    return None, said


def _found(find: Callable[[Read], T | None], data: bytes) -> T | None:
    try:
        return find(lambda start, end: decoded(data, start, end))
    except ValueError:  # the base64 is not valid
        return None
