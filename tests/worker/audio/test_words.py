"""Words, beside transformers' own code."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

from pando_worker.audio.languages import LANGUAGES, code_of
from pando_worker.audio.words import words_of

PIECES = [
    *(b" the", b" cat", b"s", b"'", b"s", b" ", b".", b","),
    *(b" (", b")", b' "', b'"', b"-", b" -"),
    *(bytes([byte]) for byte in " 日本語。ñ€😀".encode()),
    *("日".encode(), " ¿".encode(), "\uff01".encode(), b"12", b" 3"),
]


class Tokenizer:
    """Tokens of a byte-level vocabulary, as transformers' code sees one."""

    eos_token_id = len(PIECES)

    def decode(self, tokens: Sequence[int], decode_with_timestamps: bool = False) -> str:
        return b"".join(PIECES[token] for token in tokens).decode(errors="replace")


@hypothesis_settings(deadline=None)
@given(
    st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=20),
    st.sampled_from(["en", "ja", "yue", "de"]),
)
def test_words_are_those_of_transformers(tokens: list[int], language: str) -> None:
    tokenizer = Tokenizer()
    words, _, indices = _combine_tokens_into_words(tokenizer, tokens, LANGUAGES[language])
    found = words_of(tokens, tokenizer.decode, language)
    assert [span.text for span in found] == words
    assert [(span.first, span.last) for span in found] == [(at[0], at[-1]) for at in indices]


@pytest.mark.parametrize(
    ("name", "code"),
    [("en", "en"), ("English", "en"), ("castilian", "es"), ("YUE", "yue"), ("klingon", None)],
)
def test_languages_are_found_by_code_and_name(name: str, code: str | None) -> None:
    assert code_of(name) == code
