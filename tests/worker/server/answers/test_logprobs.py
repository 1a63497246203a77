"""Log-probabilities in OpenAI's forms, with OpenAI's own client, and in SGLang's form.

The stand-in scores a token by `score`, independent of its position, so each entry follows from its
id.
"""

from itertools import chain
from typing import Any

import aiohttp
import openai
import pytest

from pando_worker.messages import Output, TokenLogprob
from pando_worker.server.answers.logprobs import LEAST_LOGPROB, chat_logprobs, completion_logprobs
from pando_worker.server.text.reader import OutputReader, ScoredToken, TextOptions
from pando_worker.server.text.tokenizer import Tokenizer
from pando_worker.tokenizer.detokenizer import Vocabulary
from tests.worker.server.process.worker_process import MODEL, MODEL_NAME
from tests.worker.server.stand_in import Trick, score
from tests.worker.server.text.tokenizers_for_tests import byte_level, sentencepiece

TEXT = "the function returns a list of the names"
TOKENIZER = Tokenizer(MODEL)
CHAT: Any = [{"role": "user", "content": "Grüße, 世界 🙂"}]


async def ids_of(text: str) -> list[int]:
    return (await TOKENIZER.encode(text)).token_ids


def spelled(token_id: int) -> bytes:
    return TOKENIZER.vocabulary[token_id]


async def test_completion_logprobs_are_parallel_lists(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME, prompt=TEXT, max_tokens=len(ids), logprobs=2
    )
    found = done.choices[0].logprobs
    assert found is not None and found.tokens is not None and found.text_offset is not None
    assert found.tokens == [spelled(token_id).decode() for token_id in ids]
    assert found.token_logprobs == [score(token_id, 0).logprob for token_id in ids]
    assert [TEXT[offset:] for offset in found.text_offset] == [
        "".join(found.tokens[i:]) for i in range(len(ids))
    ]
    assert found.top_logprobs is not None
    for token, top in zip(found.tokens, found.top_logprobs, strict=True):
        assert token in top and len(top) == 2


async def test_zero_logprobs_are_those_of_the_tokens_alone(client: openai.AsyncOpenAI) -> None:
    done = await client.completions.create(model=MODEL_NAME, prompt=TEXT, max_tokens=2, logprobs=0)
    found = done.choices[0].logprobs
    assert found is not None and found.top_logprobs is not None
    assert [set(top) for top in found.top_logprobs] == [{token} for token in found.tokens or ()]


async def test_streamed_logprobs_are_those_of_the_whole(client: openai.AsyncOpenAI) -> None:
    options: dict[str, Any] = {
        "model": MODEL_NAME,
        "prompt": "Grüße, 世界 🙂 and more",
        "max_tokens": 30,
        "logprobs": 1,
        "stop": ["界 🙂 and m"],
        "echo": True,
    }
    whole = (await client.completions.create(**options)).choices[0]
    stream = await client.completions.create(stream=True, **options)
    choices = [chunk.choices[0] async for chunk in stream]
    assert "".join(choice.text for choice in choices) == whole.text
    assert whole.logprobs is not None
    for name in ("tokens", "token_logprobs", "text_offset"):
        parts = [getattr(choice.logprobs, name) for choice in choices if choice.logprobs]
        assert list(chain(*parts)) == getattr(whole.logprobs, name), name


async def test_echo_gives_the_prompt_and_its_logprobs_first(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME, prompt=TEXT, max_tokens=3, logprobs=1, echo=True
    )
    [choice] = done.choices
    assert choice.text == TEXT + TOKENIZER.decode(ids[:3])
    found = choice.logprobs
    assert found is not None and found.token_logprobs is not None and found.tokens is not None
    scores: list[float | None] = [score(one, 0).logprob for one in (ids + ids[:3])[1:]]
    assert found.token_logprobs == [None, *scores]
    assert "".join(found.tokens) == choice.text
    assert found.text_offset is not None
    assert [choice.text[offset:] for offset in found.text_offset] == [
        "".join(found.tokens[i:]) for i in range(len(found.tokens))
    ]


async def test_an_echo_without_new_tokens_scores_the_prompt(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME, prompt=ids, max_tokens=0, logprobs=0, echo=True
    )
    [choice] = done.choices
    assert (choice.text, choice.finish_reason) == (TEXT, "length")
    assert choice.logprobs is not None and len(choice.logprobs.tokens or ()) == len(ids)
    assert done.usage is not None and done.usage.completion_tokens == 0


async def test_chat_logprobs_bytes_are_those_of_the_text(client: openai.AsyncOpenAI) -> None:
    options: dict[str, Any] = {
        "model": MODEL_NAME,
        "messages": CHAT,
        "max_tokens": 40,
        "logprobs": True,
        "top_logprobs": 3,
        "extra_body": {"ignore_eos": True},
    }
    [choice] = (await client.chat.completions.create(**options)).choices
    assert choice.logprobs is not None and choice.logprobs.content is not None
    content = choice.logprobs.content
    data = b"".join(bytes(token.bytes or ()) for token in content)
    assert data.decode() == choice.message.content
    assert all(len(token.top_logprobs) == 3 for token in content)
    assert [token.top_logprobs[0].token for token in content] == [one.token for one in content]

    chunks = [c async for c in await client.chat.completions.create(stream=True, **options)]
    streamed = [
        token
        for chunk in chunks
        if chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content or ()
    ]
    assert streamed == content


@pytest.mark.parametrize("trick", [None, Trick.TOGETHER], ids=["one by one", "all at once"])
async def test_a_stop_string_cuts_logprobs_with_the_text(
    client: openai.AsyncOpenAI, trick: int | None
) -> None:
    stop = "turns a l"  # begins within a token
    done = await client.completions.create(
        model=MODEL_NAME, prompt=TEXT, max_tokens=50, stop=stop, seed=trick, logprobs=0
    )
    [choice] = done.choices
    assert choice.text == TEXT[: TEXT.index(stop)]
    found = choice.logprobs
    assert found is not None and found.tokens is not None
    ids = await ids_of(TEXT)
    ends = [len(TOKENIZER.decode(ids[:n])) for n in range(len(ids))]
    kept = [one for one, start in zip(ids, ends, strict=True) if start < len(choice.text)]
    assert found.tokens == [spelled(one).decode() for one in kept]


async def test_a_stop_token_has_no_logprob_as_it_has_no_text(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME,
        prompt=TEXT,
        max_tokens=50,
        logprobs=0,
        extra_body={"stop_token_ids": [ids[3]]},
    )
    found = done.choices[0].logprobs
    assert found is not None and len(found.tokens or ()) == 3
    assert done.usage is not None and done.usage.completion_tokens == 4


async def test_generate_gives_logprobs_in_sglangs_form(http: aiohttp.ClientSession) -> None:
    ids = await ids_of(TEXT)
    body = {
        "text": TEXT,
        "sampling_params": {"max_new_tokens": 3},
        "return_logprob": True,
        "logprob_start_len": 2,
        "top_logprobs_num": 2,
        "return_text_in_logprobs": True,
    }
    async with http.post("/generate", json=body) as answer:
        meta = (await answer.json())["meta_info"]

    def entry(token_id: int) -> list[Any]:
        return [score(token_id, 0).logprob, token_id, spelled(token_id).decode()]

    assert meta["output_token_logprobs"] == [entry(one) for one in ids[:3]]
    first, *rest = meta["input_token_logprobs"]
    assert first == [None, ids[2], spelled(ids[2]).decode()]
    assert rest == [entry(one) for one in ids[3:]]
    assert meta["input_top_logprobs"][0] is None
    tops = [*meta["input_top_logprobs"][1:], *meta["output_top_logprobs"]]
    assert [[one[:2] for one in top] for top in tops] == [
        [[-0.25, token_id], [-1.25, token_id + 1]] for token_id in (*ids[3:], *ids[:3])
    ]


async def test_generate_scores_the_output_alone_by_default(http: aiohttp.ClientSession) -> None:
    body = {"text": TEXT, "return_logprob": True, "sampling_params": {"max_new_tokens": 2}}
    async with http.post("/generate", json=body) as answer:
        meta = (await answer.json())["meta_info"]
    assert meta["input_token_logprobs"] == []
    assert [one[2] for one in meta["output_token_logprobs"]] == [None, None]
    assert "output_top_logprobs" not in meta


def scored(vocabulary: Vocabulary, token_ids: list[int]) -> list[ScoredToken]:
    reader = OutputReader(0, vocabulary, TextOptions())
    output = Output(
        rid="",
        token_ids=token_ids,
        cached_tokens=0,
        logprobs=[TokenLogprob(float("-inf"))] * len(token_ids),
    )
    delta = reader.read(output)
    end = reader.read(Output(rid="", token_ids=[], cached_tokens=0, finish=None))
    return delta.scored + end.scored


def test_parts_of_a_character_are_shown_as_openai_shows_them() -> None:
    vocabulary = Vocabulary(sentencepiece())
    ids = sentencepiece().encode("🙂", add_special_tokens=False).ids
    tokens = [ScoredToken(one, TokenLogprob(-1.0), 0) for one in ids]
    chat = chat_logprobs(vocabulary, tokens, 0).content
    assert [token.token for token in chat[1:]] == [r"\xf0", r"\x9f", r"\x99", r"\x82"]
    assert b"".join(bytes(token.bytes or ()) for token in chat) == " 🙂".encode()
    completion = completion_logprobs(vocabulary, tokens, 0)
    assert completion.tokens[1:] == [rf"bytes:\x{byte:02x}" for byte in "🙂".encode()]


def test_special_tokens_have_a_name_and_no_bytes_and_infinity_is_openais() -> None:
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer)
    ids = tokenizer.encode("</s>fox").ids
    first, *rest = chat_logprobs(vocabulary, scored(vocabulary, ids), 0).content
    assert (first.token, first.bytes) == ("</s>", None)
    assert b"".join(bytes(token.bytes or ()) for token in rest) == b"fox"
    assert {token.logprob for token in (first, *rest)} == {LEAST_LOGPROB}
