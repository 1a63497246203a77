"""Parts that are images, as a digest of what they show.

An image in base64 counts by its bytes: in whichever API and spelling they come, and whatever media
type is claimed, since engines look at the bytes. One that a URL or a file's id names counts by that
name.
"""

from xxhash import xxh3_128

from pando_fleet.canonical.marks import OPAQUE, json_bytes, without
from pando_fleet.images.data_url import base64_of, canonical_base64, decoded
from pando_fleet.images.in_prefix import MOST_IMAGES, PrefixImage
from pando_fleet.images.size import Size, image_size

IMAGES = frozenset(["image_url", "input_image", "image"])
"""Types of such parts: OpenAI's chats and responses, Anthropic's messages."""

_AROUND = frozenset(["type", "image_url", "source", "cache_control", "detail"])
_AROUND_URL = frozenset(["url", "detail"])
_AS_USUAL = (None, "auto")  # of `detail`


def add_image(out: list[bytes], images: list[PrefixImage], part: dict[str, object]) -> None:
    """Adds the digest of a part to the canonical bytes, and what is known of it to `images`."""
    data, said = _data(part)
    digest, size = xxh3_128(), None
    if data is not None:
        digest.update(data)
        size = _size(data) if len(images) < MOST_IMAGES else None
    if said:
        digest.update(json_bytes(said))
    out += (OPAQUE, digest.hexdigest().encode())
    if len(images) < MOST_IMAGES:
        is_low = said.get("detail") == "low"
        before = images[-1] if images else PrefixImage(0, None)
        end = before.end + sum(map(len, out[before.pieces :]))
        images.append(PrefixImage(end, size, is_low, pieces=len(out)))


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


def _size(data: bytes) -> Size | None:
    try:
        return image_size(lambda start, end: decoded(data, start, end))
    except ValueError:
        return None
