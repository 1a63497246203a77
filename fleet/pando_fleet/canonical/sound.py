"""A file of sound as canonical bytes: the digest of its bytes, since engines encode nothing else.

Fields beside the file, such as language and prompt, change what a decoder makes of an encoding, not
the encoding. So they are left out, and requests with the same file go where it was encoded.
"""

from xxhash import xxh3_128_hexdigest

from pando_fleet.canonical.marks import OPAQUE
from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.images.sound import sound_seconds

_SOUND = b"sound"


def sound_bytes(data: bytes) -> tuple[bytes, PrefixImage]:
    """The canonical bytes of a file, and its place in them."""
    prefix = OPAQUE + _SOUND + xxh3_128_hexdigest(data).encode()
    seconds = sound_seconds(lambda start, end: data[start:end], len(data))
    return prefix, PrefixImage(len(prefix), None, seconds=seconds)
