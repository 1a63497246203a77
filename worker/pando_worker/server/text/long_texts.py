"""Texts far longer than any prompt that fits: refused, or cut, without tokenizing all of them.

A tokenizer makes some 2 MB of text a second into tokens, and a request body may have 64 MB. Nothing
here rests on how long a token can be: some tokenizers make one of any run of white space.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pando_worker.server.errors import bad_request

Encode = Callable[[str], list[int]]

PIECE_CHARS = 65_536
_CHARS_A_TOKEN = 8  # more than nearly any text has
_AGREEMENT = 64  # tokens in front of those wanted


@dataclass(frozen=True, slots=True)
class Room:
    """What there is room for. A text is tokenized as far as this needs it."""

    tokens: int  # the model's context
    keep_last: int | None  # only so many of the last tokens are wanted
    param: str  # the request's field, for errors


def is_long(text: str, room: Room) -> bool:
    """Whether tokenizing all of it may be a waste."""
    wanted = room.tokens if room.keep_last is None else min(room.keep_last, room.tokens)
    return len(text) > _CHARS_A_TOKEN * wanted + PIECE_CHARS


def refuse_far_too_long(text: str, room: Room, encode: Encode) -> None:
    """By the text's pieces, until they have twice the tokens that fit: in pieces of this size a
    text has hardly more of them than as a whole.

    Raises:
        ApiError: 400.
    """
    counted = 0
    for start in range(0, len(text), PIECE_CHARS):
        counted += len(encode(text[start : start + PIECE_CHARS]))
        if counted > 2 * room.tokens:
            read = min(start + PIECE_CHARS, len(text))
            raise bad_request(
                f"{len(text)} characters of text are far too long: at most {room.tokens} tokens are"
                f" possible here, and the first {read} characters alone have about"
                f" {counted}",
                room.param,
                "context_length_exceeded",
            )


def last_tokens(text: str, keep: int, encode: Encode) -> list[int]:
    """At least `keep` of the last tokens, where the text has as many.

    Where a text is cut decides the tokens behind the cut, but not far: two ends of the text that
    begin at different places agree from some token on. The one that is taken agrees with another,
    half as long, on all tokens that are wanted and some in front of them.
    """
    shared = keep + _AGREEMENT
    size = _CHARS_A_TOKEN * shared
    shorter: list[int] = []
    while size < len(text):
        longer = encode(text[-size:])
        if len(shorter) > shared and shorter[-shared:] == longer[-shared:]:
            return longer
        shorter, size = longer, 2 * size
    return encode(text)
