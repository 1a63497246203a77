"""Turns tokens into text, one token at a time, without splitting a character.

Byte-level and SentencePiece tokenizers both spell a token as the same bytes in every context. So a
request's text is the bytes of its tokens, put through an incremental UTF-8 decoder: O(1) per token,
with no window to decode again. Bytes that are not UTF-8 become U+FFFD, as when the whole text is
decoded at once.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from tokenizers import Tokenizer

from pando_worker.models.errors import UnsupportedModel

_UTF8 = codecs.getincrementaldecoder("utf-8")
_NONE: Mapping[int, bytes] = {}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class Vocabulary:
    """The bytes of each token id, in a table that all detokenizers share."""

    def __init__(self, tokenizer: Tokenizer, *, generates: bool = True) -> None:
        """
        Args:
            generates: whether tokens become text; else a token's bytes are its own spelling

        Raises UnsupportedModel if tokens become text and the decoder is of neither kind.
        """
        self._tokenizer = tokenizer
        steps = _steps(tokenizer) if generates else []
        self._spell = _speller(steps) if generates else str.encode
        # Whether a whole text is spelled with a space in front, which it does not have.
        self.leads_with_space = any(map(_drops_a_space, steps))
        added = tokenizer.get_added_tokens_decoder().items()
        # Special tokens, with their text for outputs that show them.
        self.special = {id: token.content.encode() for id, token in added if token.special}
        self._bytes: dict[int, bytes] = dict.fromkeys(self.special, b"")

    def __getitem__(self, token_id: int) -> bytes:
        """The token's bytes: empty for a special token, and for an id that the tokenizer lacks
        (embeddings are often padded beyond its size)."""
        found = self._bytes.get(token_id)
        if found is None:
            token = self._tokenizer.id_to_token(token_id)
            found = self._bytes[token_id] = b"" if token is None else self._spell(token)
        return found


class Detokenizer:
    """The text of one request's output."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        written: Mapping[int, bytes] = _NONE,
        *,
        is_whole: bool = False,
    ) -> None:
        """
        Args:
            written: the special tokens to show, from `Vocabulary.special`
            is_whole: the output is a text of its own, not the continuation of its prompt
        """
        self._vocabulary = vocabulary
        self._written = written
        self._decoder = _UTF8("replace")
        self._drops_space = is_whole and vocabulary.leads_with_space

    @property
    def within_character(self) -> bool:
        """Whether the output so far ends within a character."""
        return bool(self._decoder.getstate()[0])

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        spelled = self._written.get(token_id) or self._vocabulary[token_id]
        if self._drops_space and spelled:
            spelled = spelled.removeprefix(b" ")
            self._drops_space = False
        return self._decoder.decode(spelled)

    def flush(self) -> str:
        """U+FFFD if the output ended within a character, else empty."""
        return self._decoder.decode(b"", final=True)


def _steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Of its decoder."""
    decoder = tokenizer.decoder
    if decoder is None:
        raise UnsupportedModel("its tokenizer has no decoder: tokens cannot be turned into text")
    state: dict[str, Any] = msgspec.json.decode(decoder.__getstate__())
    steps: list[dict[str, Any]] = state["decoders"] if state["type"] == "Sequence" else [state]
    return steps


def _drops_a_space(step: dict[str, Any]) -> bool:
    """Whether a decoder's step removes the space in front of a whole text."""
    match step:
        case {"type": "Strip", "content": " ", "start": int(start)}:
            return start > 0
        case {"type": "Metaspace", "prepend_scheme": scheme}:
            return bool(scheme != "never")
    return False


def _speller(steps: list[dict[str, Any]]) -> Callable[[str], bytes]:
    kinds = {step["type"] for step in steps}
    if kinds == {"ByteLevel"}:
        return _byte_level
    # Fuse joins tokens. Strip removes the space at the start of a whole text: see `_drops_a_space`.
    if kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        return _sentencepiece(steps)
    raise UnsupportedModel(
        f"its tokenizer's decoder is {', '.join(sorted(kinds))}; supported: byte-level and"
        " SentencePiece tokenizers"
    )


def _sentencepiece(steps: list[dict[str, Any]]) -> Callable[[str], bytes]:
    replacements: list[tuple[str, str]] = []
    for step in steps:
        match step:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                replacements.append((old, new))
            case {"type": "Metaspace", "replacement": str(old)}:
                replacements.append((old, " "))
            case {"type": "Replace"}:
                raise UnsupportedModel(f"its tokenizer's decoder has an unsupported step: {step}")
    byte_fallback = any(step["type"] == "ByteFallback" for step in steps)

    def spell(token: str) -> bytes:
        for old, new in replacements:
            token = token.replace(old, new)
        if byte_fallback and (byte := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        return token.encode()

    return spell


def _byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF_CHAR[char] for char in token)
    except KeyError:  # an added token, which is plain text
        return token.encode()


def _byte_of_char() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, others follow from 256 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in own)
    return {chr(byte): byte for byte in own} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF_CHAR = _byte_of_char()
