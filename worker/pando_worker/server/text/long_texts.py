"""Refuses or truncates texts that are far too long, without tokenizing all of them.

A tokenizer processes about 2 MB of text per second, and a request body may have 64 MB. Nothing here
assumes a maximum length of a token: some tokenizers make one token of any run of white space.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pando_worker.server.errors import too_long

Encode = Callable[[str], list[int]]

PIECE_CHARS = 65_536
_CHARS_A_TOKEN = 8  # more than almost any text has
_AGREEMENT = 64  # tokens before the requested ones


@dataclass(frozen=True, slots=True)
class Room:
    """The room for a prompt. A text is only tokenized as far as this requires."""

    tokens: int  # the model's context
    keep: int | None  # only this many tokens are used, the last ones
    param: str  # the request's field, for errors
    # The first ones instead, with the tokens that the tokenizer adds, as encoders need them.
    from_start: bool = False


def is_long(text: str, room: Room) -> bool:
    """Whether tokenizing all of the text may be a waste."""
    wanted = room.tokens if room.keep is None else min(room.keep, room.tokens)
    return len(text) > _CHARS_A_TOKEN * wanted + PIECE_CHARS


def refuse_far_too_long(text: str, room: Room, encode: Encode) -> None:
    """Tokenize the text in pieces until they have twice the tokens that fit; pieces of this size
    have hardly more tokens than the whole text.

    Raises:
        ApiError: 400.
    """
    counted = 0
    for start in range(0, len(text), PIECE_CHARS):
        counted += len(encode(text[start : start + PIECE_CHARS]))
        if counted > 2 * room.tokens:
            read = min(start + PIECE_CHARS, len(text))
            raise too_long(
                f"{len(text)} characters of text are far too long: at most {room.tokens} tokens"
                f" fit, and the first {read} characters alone have about"
                f" {counted}",
                room.param,
            )


def messages_for(room: Room) -> int:
    """As many may have room: a message has a token at least."""
    return 2 * room.tokens


def refuse_far_too_many(messages: int, room: Room) -> None:
    """So that they need not be rendered.

    Raises:
        ApiError: 400.
    """
    if room.keep is None and messages > messages_for(room):
        raise too_long(
            f"{messages} messages are far too many: at most {room.tokens} tokens fit",
            room.param,
        )


def last_tokens(text: str, keep: int, encode: Encode) -> list[int]:
    """At least `keep` of the last tokens, if the text has as many.

    The place of a cut affects the tokens after it, but not far: two ends of the text that begin at
    different places agree from some token on. The result agrees with another end, half as long, on
    all requested tokens and some before them.
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


def first_text(text: str, keep: int, encode: Encode) -> str:
    """The beginning of a text, with at least `keep` of its tokens if it has as many, and some
    more."""
    size = _CHARS_A_TOKEN * keep + PIECE_CHARS
    while size < len(text) and len(encode(text[:size])) <= keep + _AGREEMENT:
        size *= 2
    return text[:size]
