"""Tokens to words: a word begins with a space, and punctuation joins the word beside it.

As `_combine_tokens_into_words` of transformers' tokenizer, which has it from OpenAI's whisper.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pando_worker.audio.languages import WITHOUT_SPACES

_JOINS_NEXT = "\"'“¡¿([{-"
_JOINS_LAST = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_BROKEN = "\ufffd"  # of a character that further tokens complete

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Span:
    """
    Attributes:
        text: of a word, with its space
        first, last: indices of its tokens
    """

    text: str
    first: int
    last: int

    def and_next(self, other: "Span") -> "Span":
        return Span(self.text + other.text, self.first, other.last)


def words_of(tokens: Sequence[int], decode: Decode, language: str) -> list[Span]:
    """
    Args:
        tokens: of text, without special ones and time stamps
        decode: to text, with a replacement character for one that is not complete
        language: its code
    """
    spans = _characters(tokens, decode)
    if language not in WITHOUT_SPACES:
        spans = _spaced(spans)
    return _with_punctuation(spans)


def _characters(tokens: Sequence[int], decode: Decode) -> list[Span]:
    """Tokens, joined where only several of them make a character."""
    whole = decode(tokens)
    spans: list[Span] = []
    first, done = 0, 0
    for last in range(len(tokens)):
        text = decode(tokens[first : last + 1])
        broken = text.find(_BROKEN)
        at = done + broken
        if broken < 0 or at >= len(whole) or whole[at] == _BROKEN:
            spans.append(Span(text, first, last))
            first, done = last + 1, done + len(text)
    return spans


def _spaced(spans: Sequence[Span]) -> list[Span]:
    words: list[Span] = []
    for span in spans:
        if not words or span.text.startswith(" ") or span.text.strip() in _PUNCTUATION:
            words.append(span)
        else:
            words[-1] = words[-1].and_next(span)
    return words


def _with_punctuation(words: list[Span]) -> list[Span]:
    behind: list[Span] = []  # from the last word to the first
    for word in reversed(words):
        if behind and word.text.startswith(" ") and word.text.strip() in _JOINS_NEXT:
            behind[-1] = word.and_next(behind[-1])
        else:
            behind.append(word)
    joined: list[Span] = []
    for word in reversed(behind):
        if joined and not joined[-1].text.endswith(" ") and word.text in _JOINS_LAST:
            joined[-1] = joined[-1].and_next(word)
        else:
            joined.append(word)
    return joined
