"""Incremental detokenization, compared with the tokenizer library's decode of the whole text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordPiece

from pando_worker.models.errors import UnsupportedModel
from pando_worker.tokenizer.detokenizer import Detokenizer, Vocabulary
from tests.worker.server.text.tokenizers_for_tests import byte_level, sentencepiece

BYTE_LEVEL, SENTENCEPIECE = byte_level(), sentencepiece()
VOCABULARY = {"byte_level": Vocabulary(BYTE_LEVEL), "sentencepiece": Vocabulary(SENTENCEPIECE)}

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\u2581\ufffd")


def stream(vocabulary: Vocabulary, token_ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(vocabulary)
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]


@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() + 5), max_size=60))
def test_any_token_sequence_gives_the_text_of_a_whole_decode(token_ids: list[int]) -> None:
    pieces = stream(VOCABULARY["byte_level"], token_ids)
    assert "".join(pieces) == BYTE_LEVEL.decode(token_ids, skip_special_tokens=True)


@given(st.text(characters, max_size=40), st.text(characters, max_size=40))
def test_sentencepiece_output_continues_its_prompt(prompt: str, output: str) -> None:
    prompt_ids = SENTENCEPIECE.encode("a" + prompt).ids
    all_ids = SENTENCEPIECE.encode("a" + prompt + output).ids
    if all_ids[: len(prompt_ids)] != prompt_ids:
        return  # the border is within a token
    pieces = stream(VOCABULARY["sentencepiece"], all_ids[len(prompt_ids) :])
    whole = SENTENCEPIECE.decode(all_ids)
    assert SENTENCEPIECE.decode(prompt_ids) + "".join(pieces) == whole


@given(st.text(characters, min_size=1, max_size=40))
def test_a_character_is_never_cut(text: str) -> None:
    for name, tokenizer, prefix in (
        ("byte_level", BYTE_LEVEL, ""),
        ("sentencepiece", SENTENCEPIECE, " "),
    ):
        pieces = stream(VOCABULARY[name], tokenizer.encode(text, add_special_tokens=False).ids)
        assert not any("\ufffd" in piece for piece in pieces)
        assert "".join(pieces) == prefix + text


@given(st.text(characters, max_size=40))
def test_a_text_of_its_own_is_that_of_a_whole_decode(text: str) -> None:
    for name, tokenizer in (("byte_level", BYTE_LEVEL), ("sentencepiece", SENTENCEPIECE)):
        token_ids = tokenizer.encode(text).ids
        detokenizer = Detokenizer(VOCABULARY[name], is_whole=True)
        found = "".join(map(detokenizer.push, token_ids)) + detokenizer.flush()
        assert found == tokenizer.decode(token_ids, skip_special_tokens=True) == text


def test_special_tokens_are_left_out() -> None:
    [eos], word = BYTE_LEVEL.encode("</s>").ids, BYTE_LEVEL.encode("fox").ids
    assert "".join(stream(VOCABULARY["byte_level"], [eos, *word, eos])) == "fox"


def test_a_tokenizer_of_another_family_is_refused() -> None:
    tokenizer = Tokenizer(WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModel, match="WordPiece"):
        Vocabulary(tokenizer)


@given(st.lists(st.integers(0, 400), max_size=30))
def test_special_tokens_are_written_where_that_is_asked_for(token_ids: list[int]) -> None:
    vocabulary = VOCABULARY["byte_level"]
    detokenizer = Detokenizer(vocabulary, vocabulary.special)
    text = "".join(map(detokenizer.push, token_ids)) + detokenizer.flush()
    whole = b"".join(vocabulary.special.get(one) or vocabulary[one] for one in token_ids)
    assert text == whole.decode(errors="replace")
