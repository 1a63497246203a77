"""SGLang's /generate, vLLM's /tokenize and /detokenize, and the control endpoints."""

import asyncio
import json
import signal
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from pando_worker.server.protocol.chats.chat import ChatMessage, messages_of
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess, metric, until
from tests.worker.server.stand_in import CONTEXT, Trick

TEXT = "the function returns a list of the names"


async def post(http: aiohttp.ClientSession, path: str, **body: Any) -> Any:
    async with http.post(path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_tokens_go_round(http: aiohttp.ClientSession) -> None:
    tokens = await post(http, "/tokenize", prompt=TEXT, model=MODEL_NAME, return_token_strs=True)
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
    assert tokens["max_model_len"] == CONTEXT
    assert await post(http, "/detokenize", tokens=tokens["tokens"]) == {"prompt": TEXT}


async def test_a_chat_is_tokenized_as_it_would_be_generated(http: aiohttp.ClientSession) -> None:
    asked, begun = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"}
    for chat in (
        {"messages": [asked]},
        {"messages": [asked], "add_generation_prompt": False},
        {"messages": [asked, begun], "continue_final_message": True},
    ):
        tokens = (await post(http, "/tokenize", **chat))["tokens"]
        done = await post(http, "/v1/chat/completions", model=MODEL_NAME, max_tokens=1, **chat)
        assert done["usage"]["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"role": "user", "content": "hi"}], "the last message has role 'user'"),
        ([{"role": "assistant", "content": "so"}], "messages must have another before it"),
    ],
)
async def test_what_cannot_be_continued_is_refused(
    http: aiohttp.ClientSession, path: str, messages: list[dict[str, str]], says: str
) -> None:
    refused = {"model": MODEL_NAME, "messages": messages, "continue_final_message": True}
    async with http.post(path, json=refused) as answer:
        assert answer.status == 400
        assert says in (await answer.json())["error"]["message"]


async def test_a_developer_is_the_system_where_the_template_knows_no_developer(
    http: aiohttp.ClientSession,
) -> None:
    def chat(role: str) -> dict[str, Any]:
        return {"messages": [{"role": role, "content": "Be brief."}]}

    tokens = await post(http, "/tokenize", **chat("developer"))
    assert tokens == await post(http, "/tokenize", **chat("system"))
    assert tokens != await post(http, "/tokenize", **chat("user"))


@pytest.mark.parametrize(
    ("template", "role"),
    [("{% if m.role == 'developer' %}", "developer"), ("{% if m.role == 'system' %}", "system")],
)
def test_a_template_that_knows_developers_gets_them(template: str, role: str) -> None:
    message = ChatMessage(role="developer", content="Be brief.")
    assert [turn["role"] for turn in messages_of([message], template)] == [role]


async def test_generate_answers_in_sglangs_form(http: aiohttp.ClientSession) -> None:
    ids = (await post(http, "/tokenize", prompt=TEXT))["tokens"]
    sampling = {"max_new_tokens": len(ids), "temperature": 0}
    for prompt in ({"text": TEXT}, {"input_ids": ids}):
        done = await post(http, "/generate", **prompt, sampling_params=sampling, rid="mine")
        assert (done["text"], done["output_ids"]) == (TEXT, ids)
        meta = done["meta_info"]
        assert meta["id"] == "mine"
        assert meta["finish_reason"] == {"type": "length", "length": len(ids)}
        assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(ids), len(ids))


async def test_generate_names_what_stopped_it(http: aiohttp.ClientSession) -> None:
    ids = (await post(http, "/tokenize", prompt=TEXT))["tokens"]
    for stop, matched in (({"stop": "list"}, "list"), ({"stop_token_ids": [ids[2]]}, ids[2])):
        done = await post(http, "/generate", text=TEXT, sampling_params=stop)
        assert done["meta_info"]["finish_reason"] == {"type": "stop", "matched": matched}


async def test_generate_streams_all_text_so_far(http: aiohttp.ClientSession) -> None:
    # Two seconds of tokens, as a busy machine may deliver late ones together.
    sampling = {"max_new_tokens": 100, "seed": Trick.SLOW}
    body = {"text": TEXT, "stream": True, "sampling_params": sampling}
    async with http.post("/generate", json=body) as answer:
        assert answer.content_type == "text/event-stream"
        events = [line[6:] async for line in answer.content if line.startswith(b"data: ")]
    assert events.pop().strip() == b"[DONE]"
    texts = [json.loads(event)["text"] for event in events]
    assert texts[-1].startswith(TEXT)
    assert all(later.startswith(text) for text, later in pairwise(texts))
    assert len(texts[-1]) > len(texts[0])
    assert [json.loads(event)["meta_info"]["completion_tokens"] for event in events][-1] == 100


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [5]}, "text"),
        ({"text": ["a", ""]}, "text"),
        ({"text": []}, "text"),
        ({"text": "a", "sampling_params": {"max_new_tokens": 0}}, "sampling_params.max_new_tokens"),
        ({"text": "a", "sampling_params": {"n": 0}}, "sampling_params.n"),
        ({"text": "a", "token_ids_logprob": [5]}, "token_ids_logprob"),
        ({"text": "a", "top_logprobs_num": 21}, "top_logprobs_num"),
        ({"text": "a", "logprob_start_len": 2**31}, "logprob_start_len"),
        ({"text": "a", "logprob_start_len": -2}, "logprob_start_len"),
        ({"text": "a", "priority": 1}, "priority"),
        ({"text": "a", "rid": "with space"}, "rid"),
    ],
)
async def test_bad_native_requests_are_named(
    http: aiohttp.ClientSession, body: dict[str, Any], param: str
) -> None:
    async with http.post("/generate", json=body) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == param


async def test_abort_ends_every_request_of_that_name(
    http: aiohttp.ClientSession, worker: WorkerProcess
) -> None:
    sampling = {"seed": Trick.SLOW, "max_new_tokens": 200}
    body = {"text": TEXT, "rid": "twice", "stream": True, "sampling_params": sampling}
    async with http.post("/generate", json=body) as one, http.post("/generate", json=body) as two:
        assert await post(http, "/abort_request", rid="twice") == {"aborted": 2}
        for answer in (one, two):
            *_, last, done = (await answer.text()).strip().split("\n\n")
            assert done == "data: [DONE]"
            assert json.loads(last[6:])["meta_info"]["finish_reason"]["type"] == "abort"
    assert await post(http, "/abort_request", rid="nobody") == {"aborted": 0}


async def test_flush_is_refused_while_a_request_runs(http: aiohttp.ClientSession) -> None:
    assert await post(http, "/flush_cache") == {"flushed": True}
    body = {"text": TEXT, "stream": True, "sampling_params": {"seed": Trick.SLOW}}
    async with http.post("/generate", json=body), http.post("/flush_cache") as answer:
        assert answer.status == 409
        assert (await answer.json())["error"]["code"] == "busy"


async def test_rejections_get_their_status(http: aiohttp.ClientSession) -> None:
    for stream in (False, True):
        body = {"text": "x", "stream": stream, "sampling_params": {"seed": Trick.BUSY}}
        async with http.post("/generate", json=body) as answer:
            assert answer.status == 503
            assert answer.headers["retry-after"] == "1"
            assert (await answer.json())["error"]["code"] == "queue_full"


async def test_failure_in_mid_stream_ends_with_an_error_event(http: aiohttp.ClientSession) -> None:
    sampling = {"seed": Trick.FAILS_LATER, "max_new_tokens": 200}
    body = {"text": TEXT, "stream": True, "sampling_params": sampling}
    async with http.post("/generate", json=body) as answer:
        assert answer.status == 200
        await answer.content.readline()
        async with http.post("/flush_cache") as refused:
            assert refused.status == 409
        last = (await answer.text()).strip().split("\n\n")[-1]
    assert json.loads(last[6:])["error"]["message"] == "it failed while running"


async def test_failure_before_an_answer_is_its_status(http: aiohttp.ClientSession) -> None:
    body = {"text": TEXT, "sampling_params": {"seed": Trick.FAILS}}
    async with http.post("/generate", json=body) as answer:
        assert answer.status == 500
        assert (await answer.json())["error"]["message"] == "it failed while running"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("trick", [Trick.QUEUED, Trick.SLOW], ids=["queued", "running"])
async def test_a_client_that_leaves_aborts_its_request(
    http: aiohttp.ClientSession, worker: WorkerProcess, trick: Trick, stream: bool
) -> None:
    aborted, running = "pando_worker_aborted_requests_total", "pando_worker_running_requests"
    await until(lambda: _is_zero(http, running))  # those of earlier tests end a moment later
    before = await metric(http, aborted)
    body = {
        "text": TEXT,
        "stream": stream,
        "sampling_params": {"seed": trick, "max_new_tokens": 200},
    }
    async with aiohttp.ClientSession(worker.url) as leaving:
        request = leaving.post("/generate", json=body)
        if stream and trick is Trick.SLOW:
            answer = await request
            await answer.content.readline()
        else:
            task = asyncio.ensure_future(request)
            await until(lambda: _more(http, running, 0))
            task.cancel()
    await until(lambda: _more(http, aborted, before))
    assert await metric(http, "pando_worker_kv_tokens", '{state="pinned"}') == 0


async def _is_zero(http: aiohttp.ClientSession, name: str) -> bool:
    return await metric(http, name) == 0


async def _more(http: aiohttp.ClientSession, name: str, than: float) -> bool:
    return await metric(http, name) > than


async def test_server_info_hides_the_redis_url(http: aiohttp.ClientSession) -> None:
    async with http.get("/server_info") as answer:
        info = await answer.json()
    assert info["engine"]["max_request_tokens"] == CONTEXT
    assert "redis" not in info["settings"]


async def test_metrics_count_tokens_and_latencies(http: aiohttp.ClientSession) -> None:
    first = "pando_worker_time_to_first_token_seconds_count"
    next_ = "pando_worker_inter_token_latency_seconds_count"
    before = [await metric(http, name) for name in (first, next_)]
    sampling = {"seed": Trick.SLOW, "max_new_tokens": 5}
    await post(http, "/generate", text=TEXT, sampling_params=sampling)
    after = [await metric(http, name) for name in (first, next_)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 4]


async def test_scheduler_ignores_the_terminals_signals(
    http: aiohttp.ClientSession, worker: WorkerProcess
) -> None:
    scheduler = worker.scheduler()
    scheduler.send_signal(signal.SIGINT)
    scheduler.send_signal(signal.SIGTERM)
    await post(http, "/generate", text="still there", sampling_params={"max_new_tokens": 2})
