"""`data:` URLs in base64 (RFC 2397), whose many spellings of the same bytes become one.

Clients break lines, leave out the padding, percent-encode it and the signs `+` and `/`, use the
alphabet for URLs, or spell the media type in upper case. `base64_of` gives the same text for all of
these. It costs less than decoding: an ordinary text is only searched for what would have to be
replaced.
"""

from binascii import Error, a2b_base64, b2a_base64

_SPACES = b" \t\n\r\f"
_URL_ALPHABET = bytes.maketrans(b"-_", b"+/")
# What encoders escape in base64. Decoding any escape takes 100 times a text's size in memory.
_ESCAPES = {
    escape: bytes((sign,))
    for sign in b"+/=-_" + _SPACES
    for escape in (b"%%%02X" % sign, b"%%%02x" % sign)
}
_HEAD = 256  # longest part before the comma


def base64_of(url: str) -> bytes | None:
    """The canonical base64 of a `data:` URL; None for any other URL.

    What is not base64 comes out as it is, so it equals nothing that is valid.
    Raises UnicodeEncodeError for a text with half a surrogate pair.
    """
    if url[:5].lower() != "data:":
        return None
    comma = url.find(",", 0, _HEAD)
    if comma < 0 or not url[:comma].lower().rstrip().endswith(";base64"):
        return None
    return canonical_base64(url[comma + 1 :])


def canonical_base64(text: str) -> bytes:
    """One spelling of base64: equal exactly if the bytes are, in the plain alphabet, without
    padding. Raises like `base64_of`."""
    data = text.encode()
    if 0 < 3 * data.count(b"%") <= len(data):  # an escape has three letters
        for escape, sign in _ESCAPES.items():
            data = data.replace(escape, sign)
    if any(bytes((space,)) in data for space in _SPACES):
        data = data.translate(None, _SPACES)
    if b"-" in data or b"_" in data:
        data = data.translate(_URL_ALPHABET)
    data = data.rstrip(b"=")
    return _with_plain_end(data) if len(data) % 4 else data


def decoded(data: bytes, start: int = 0, end: int | None = None) -> bytes:
    """The bytes from `start` to `end` behind canonical base64; fewer where they end.

    Raises ValueError if the base64 behind them is not valid.
    """
    first = start // 3
    text = data[4 * first :] if end is None else data[4 * first : 4 * -(-end // 3)]
    found = a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
    return found[start - 3 * first : None if end is None else end - 3 * first]


def _with_plain_end(data: bytes) -> bytes:
    """The last letter may have bits that stand for nothing."""
    whole = len(data) // 4 * 4
    try:
        end = a2b_base64(data[whole:] + b"=" * (-len(data) % 4), strict_mode=True)
    except Error:
        return data
    return data[:whole] + b2a_base64(end, newline=False).rstrip(b"=")
