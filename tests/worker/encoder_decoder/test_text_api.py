"""Prompts that an encoder reads, through the whole worker: the tokens of transformers."""

import json
from typing import Any

import aiohttp
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tests.worker.encoder_decoder.checkpoints import START, SourceReference, bart

pytestmark = pytest.mark.e2e

BOS, END, COUNT = 9, 2, 8
PROMPT = "w65 w57 w78 w32 w36"
IDS = [65, 57, 78, 32, 36, END]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> SourceReference:
    reference = bart(tmp_path_factory.mktemp("model"))
    words = {f"▁w{id}": id for id in range(120) if id != END} | {"</s>": END}
    tokenizer = Tokenizer(WordLevel(words, unk_token="▁w4"))
    tokenizer.pre_tokenizer, tokenizer.decoder = Metaspace(), MetaspaceDecoder()
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        chat_template="{{ messages[0]['content'] }}</s>",
    )
    fast.save_pretrained(reference.path)
    path = reference.path / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"forced_bos_token_id": BOS}))
    return reference


async def asked(
    http: aiohttp.ClientSession, path: str = "/v1/completions", **fields: Any
) -> tuple[int, Any]:
    body = {"model": "seq2seq", "max_tokens": COUNT, "temperature": 0, "ignore_eos": True} | fields
    async with http.post(path, json=body) as answer:
        return answer.status, await answer.json(content_type=None)


def expected(reference: SourceReference, ids: list[int], count: int = COUNT) -> str:
    tokens = reference.greedy(np.array(ids, dtype="<i4"), [START, BOS], count)
    return " ".join(f"w{token}" for token in tokens if token != END)


async def test_a_completion_is_that_of_transformers_and_is_encoded_once(
    http: aiohttp.ClientSession, reference: SourceReference
) -> None:
    for cached in (0, len(IDS)):
        status, found = await asked(http, prompt=PROMPT, n=2)
        assert status == 200, found
        texts = [choice["text"] for choice in found["choices"]]
        assert texts == [expected(reference, IDS)] * 2
        usage = found["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(IDS), 2 * COUNT)
        assert usage["prompt_tokens_details"]["cached_tokens"] == cached


async def test_prompts_of_ids_a_chat_and_the_native_path_are_read_too(
    http: aiohttp.ClientSession, reference: SourceReference
) -> None:
    _, found = await asked(http, prompt=[[50, 51, END], [60, END]], logprobs=0)
    for choice, ids in zip(found["choices"], ([50, 51, END], [60, END]), strict=True):
        assert choice["text"] == expected(reference, ids)
        source = np.array(ids, dtype="<i4")
        tokens = reference.greedy(source, [START, BOS], COUNT)
        logits = reference.logits(source, [START, BOS, *tokens[:-1]])[1:]
        scores = logits.log_softmax(dim=-1)
        wanted = [float(scores[at, token]) for at, token in enumerate(tokens)]
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(wanted, abs=1e-3)
    messages = [{"role": "user", "content": PROMPT}]
    _, found = await asked(http, "/v1/chat/completions", messages=messages)
    assert found["choices"][0]["message"]["content"] == expected(reference, IDS)
    sampling = {"max_new_tokens": COUNT, "temperature": 0, "ignore_eos": True}
    async with http.post("/generate", json={"text": PROMPT, "sampling_params": sampling}) as answer:
        found = await answer.json()
    assert found["text"] == expected(reference, IDS)
    async with http.get("/health_generate") as answer:
        assert answer.status == 200


async def test_an_output_follows_a_grammar(
    http: aiohttp.ClientSession, reference: SourceReference
) -> None:
    logits = reference.logits(np.array(IDS, dtype="<i4"), [START, BOS])[-1]
    likelier = "w7" if logits[7] > logits[8] else "w8"
    for constraint in ({"guided_choice": ["w7", "w8"]}, {"regex": "w[78]"}):
        status, found = await asked(http, prompt=PROMPT, ignore_eos=False, **constraint)
        assert status == 200, found
        choice = found["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (likelier, "stop")
    schema = {"type": "string", "enum": ["w7", "w8"]}
    status, found = await asked(http, prompt=PROMPT, guided_json=schema)
    assert status == 400, found  # no token has a quotation mark


async def test_a_stream_stops_at_a_stop_string(
    http: aiohttp.ClientSession, reference: SourceReference
) -> None:
    words = expected(reference, IDS).split()
    stop = next(word for word in words if word != words[0])
    fields = {"model": "seq2seq", "prompt": PROMPT, "max_tokens": COUNT, "temperature": 0}
    async with http.post("/v1/completions", json=fields | {"stop": stop, "stream": True}) as answer:
        events = [
            line[6:] for line in (await answer.text()).splitlines() if line.startswith("data")
        ]
    text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])
    assert text.split() == words[: words.index(stop)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": [20] * 65}, "has 64 tokens, but the prompt alone has 65"),
        ({"prompt": []}, "no tokens"),
        ({"prompt": [20, 120]}, "120 must be below"),
        ({"prompt": PROMPT, "echo": True}, "echo cannot be used"),
        ({"prompt": PROMPT, "guided_json": {"type": "object"}}, "allows no output"),
        ({"prompt": PROMPT, "src_lang": "en_XX"}, "no languages: leave src_lang out"),
        ({"prompt": PROMPT, "tgt_lang": "en_XX"}, "no languages: leave tgt_lang out"),
        ({"prompt": PROMPT, "max_tokens": 63}, "add up to 65"),
    ],
)
async def test_what_cannot_run_gets_400(
    http: aiohttp.ClientSession, fields: dict[str, Any], message: str
) -> None:
    status, found = await asked(http, **fields)
    assert status == 400, found
    assert message in found["error"]["message"]


async def test_embeddings_and_scored_prompts_are_refused(http: aiohttp.ClientSession) -> None:
    status, found = await asked(http, "/v1/embeddings", input=PROMPT)
    assert status == 400, found
    scored = {"text": PROMPT, "return_logprob": True, "logprob_start_len": 0}
    async with http.post("/generate", json=scored) as answer:
        assert answer.status == 400, await answer.text()
