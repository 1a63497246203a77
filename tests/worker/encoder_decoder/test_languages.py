"""Source and target languages of requests to mBART: tokens and outputs of transformers."""

from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from transformers import MBart50Tokenizer, MBartTokenizer

from pando_worker.server.errors import ApiError
from pando_worker.server.languages import Languages, languages_of
from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.encoder_decoder.checkpoints import START, SourceReference, mbart

PIECES = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
PIECES += [(piece, -2.0) for piece in ["▁", *"abcdefghij", "▁a", "▁dig", "▁bad", "▁fig", "▁egg"]]
PIECES += [(f"▁w{id}", -9.0) for id in range(47)]  # as many as the model has tokens
TEXT = "a bad fig dig"
COUNT = 8


def saved(kind: type[Any], path: Path) -> Any:
    tokenizer = kind(vocab=PIECES, src_lang="en_XX")
    tokenizer.save_pretrained(path)
    return tokenizer


@pytest.mark.parametrize(("kind", "place"), [(MBartTokenizer, -1), (MBart50Tokenizer, 0)])
async def test_a_text_in_a_language_has_the_tokens_of_transformers(
    tmp_path: Path, kind: type[Any], place: int
) -> None:
    truth = saved(kind, tmp_path)
    tokenizer = Tokenizer(tmp_path)
    languages = languages_of(tokenizer)
    assert languages is not None
    assert languages.place == place
    for code in ("en_XX", "de_DE", "zh_CN"):
        truth.src_lang = code
        for text in (TEXT, "", "a de_DE"):
            own = (await tokenizer.encode(text)).token_ids
            assert languages.in_source(own, code) == truth(text).input_ids
    tokenizer.close()


def test_the_decoder_begins_with_the_language_alone_or_behind_another_token() -> None:
    languages = Languages({"en_XX": 7, "de_DE": 8}, place=-1)
    assert languages.in_target((2,), "de_DE") == [2, 8]
    assert languages.in_target((2, 7), "de_DE") == [2, 8]
    assert languages.in_target((7,), "de_DE") == [8]
    with pytest.raises(ApiError, match="no tgt_lang 'fr_XX'; it has de_DE, en_XX"):
        languages.in_target((2,), "fr_XX")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> SourceReference:
    reference = mbart(tmp_path_factory.mktemp("model"))
    saved(MBart50Tokenizer, reference.path)
    return reference


@pytest.fixture(scope="module")
def truth(reference: SourceReference) -> Any:
    return MBart50Tokenizer.from_pretrained(reference.path)


async def asked(http: aiohttp.ClientSession, **fields: Any) -> tuple[int, Any]:
    body = {"model": "seq2seq", "max_tokens": COUNT, "temperature": 0, "ignore_eos": True}
    async with http.post("/v1/completions", json=body | fields) as answer:
        return answer.status, await answer.json()


def expected(
    reference: SourceReference,
    truth: Any,
    source: str,
    start: list[int],
    keep: int | None = None,
) -> str:
    truth.src_lang = source
    read = truth(TEXT, truncation=keep is not None, max_length=keep)
    ids = np.array(read.input_ids, dtype="<i4")
    tokens = reference.greedy(ids, start, COUNT)
    return str(truth.decode(tokens, skip_special_tokens=True))


@pytest.mark.e2e
async def test_outputs_are_those_of_transformers_in_these_languages(
    http: aiohttp.ClientSession, reference: SourceReference, truth: Any
) -> None:
    texts = set()
    for source, target in (("en_XX", "de_DE"), ("de_DE", "zh_CN"), ("zh_CN", "en_XX")):
        status, found = await asked(http, prompt=TEXT, src_lang=source, tgt_lang=target)
        assert status == 200, found
        start = [START, truth.convert_tokens_to_ids(target)]
        assert found["choices"][0]["text"] == expected(reference, truth, source, start)
        texts.add(found["choices"][0]["text"])
        sampling = {"max_new_tokens": COUNT, "temperature": 0, "ignore_eos": True}
        native = {"text": TEXT, "src_lang": source, "tgt_lang": target}
        async with http.post("/generate", json=native | {"sampling_params": sampling}) as answer:
            assert (await answer.json())["text"] == found["choices"][0]["text"]
    _, found = await asked(http, prompt=TEXT)
    assert found["choices"][0]["text"] == expected(reference, truth, "en_XX", [START])
    assert len({*texts, found["choices"][0]["text"]}) == 4


@pytest.mark.e2e
async def test_a_shortened_text_keeps_its_language(
    http: aiohttp.ClientSession, reference: SourceReference, truth: Any
) -> None:
    texts = set()
    for keep in (3, 4, 5):
        status, found = await asked(
            http, prompt=TEXT, src_lang="de_DE", truncate_prompt_tokens=keep
        )
        assert status == 200, found
        assert found["usage"]["prompt_tokens"] == keep
        text = found["choices"][0]["text"]
        assert text == expected(reference, truth, "de_DE", [START], keep)
        texts.add(text)
    assert len(texts) > 1, "the length matters"


@pytest.mark.e2e
async def test_languages_that_the_model_lacks_get_400(http: aiohttp.ClientSession) -> None:
    for fields, message in (
        ({"prompt": TEXT, "src_lang": "xx_YY"}, "no src_lang 'xx_YY'; it has af_ZA"),
        ({"prompt": TEXT, "tgt_lang": "English"}, "no tgt_lang 'English'"),
        ({"prompt": [5, 6], "src_lang": "en_XX"}, "prompts of token ids"),
    ):
        status, found = await asked(http, **fields)
        assert status == 400, found
        assert message in found["error"]["message"]
