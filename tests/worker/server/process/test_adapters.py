"""LoRA adapters of a real worker: mixed in a batch, replaced and unloaded under load, in every API.
The reference is `peft`."""

import asyncio
import json
import re
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import torch

from tests.waiting import PATIENCE_S
from tests.worker.server.process.tiny_adapters import TinyAdapter, base_greedy
from tests.worker.server.process.worker_process import (
    MODEL_NAME,
    WorkerProcess,
    metric,
    until,
)
from tests.worker.server.stand_in import Trick

pytestmark = pytest.mark.e2e

PROMPT = [5, 71, 33, 160, 12, 9, 300, 41, 87, 222, 14, 150, 68, 31, 7, 99, 101, 55, 40, 23]
COUNT = 10
RANKS = {"a": 8, "b": 16, "c": 4, "d": 40}


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TinyAdapter]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: TinyAdapter(folder / name, seed, rank)
        for seed, (name, rank) in enumerate(RANKS.items())
    }


@pytest.fixture(scope="module")
def engine(adapters: dict[str, TinyAdapter]) -> Iterator[WorkerProcess]:
    """Two slots, so three adapters take turns."""
    with WorkerProcess.start(
        stand_in=False,
        threads=1,
        max_loras=2,
        max_lora_rank=48,
        lora_modules=[f"{name}={adapters[name].path}" for name in ("a", "b", "c")],
        drain_seconds=PATIENCE_S,  # so long an unload waits
    ) as worker:
        yield worker


@pytest.fixture
async def http(engine: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(engine.url) as session:
        yield session


@pytest.fixture
async def client(engine: WorkerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with engine.client() as client:
        yield client


async def generate(
    http: aiohttp.ClientSession, model: str | None, prompt: list[int] = PROMPT, **more: Any
) -> dict[str, Any]:
    body = {
        "model": model,
        "input_ids": prompt,
        "sampling_params": {"max_new_tokens": COUNT, "temperature": 0, "ignore_eos": True},
        **more,
    }
    async with http.post("/generate", json=body) as answer:
        found: dict[str, Any] = await answer.json()
        assert answer.status == 200, found
        return found


async def post(http: aiohttp.ClientSession, path: str, **body: Any) -> tuple[int, str]:
    async with http.post(path, json=body) as answer:
        text = await answer.text()
        is_json = answer.content_type == "application/json"
        return answer.status, json.loads(text)["error"]["message"] if is_json else text


async def load(http: aiohttp.ClientSession, name: str, path: Path, **more: Any) -> tuple[int, str]:
    body = {"lora_name": name, "lora_path": str(path), **more}
    return await post(http, "/v1/load_lora_adapter", **body)


async def unload(http: aiohttp.ClientSession, name: str) -> tuple[int, str]:
    return await post(http, "/v1/unload_lora_adapter", lora_name=name)


async def test_a_batch_of_adapters_and_the_base_has_the_tokens_of_peft(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter]
) -> None:
    prompts = [PROMPT[start:] for start in range(4)]
    expected, asked = [], []
    for prompt in prompts:
        for name in (MODEL_NAME, "a", "b", "c"):
            asked.append(generate(http, name, prompt))
            reference = adapters[name].greedy if name in adapters else base_greedy
            expected.append(reference(prompt, COUNT))
    found = [each["output_ids"] for each in await asyncio.gather(*asked)]
    assert found == expected
    assert len({tuple(ids) for ids in found[:4]}) == 4, "they differ, so the test can fail"
    assert await metric(http, "pando_worker_adapter_slots") == 2
    await until(lambda: _is(metric(http, "pando_worker_free_adapter_slots"), 2))
    assert await metric(http, "pando_worker_adapter_requests_total", '{adapter="a"}') == 4
    assert await metric(http, "pando_worker_adapter_loads_total") >= 3


async def _is(value: Any, expected: float) -> bool:
    return bool(await value == expected)


async def test_models_lists_adapters_with_their_parent(
    client: openai.AsyncOpenAI, adapters: dict[str, TinyAdapter]
) -> None:
    models = {model.id: model.model_dump() for model in (await client.models.list()).data}
    assert list(models) == [MODEL_NAME, "a", "b", "c"]
    assert models["b"]["parent"] == MODEL_NAME
    assert models["b"]["root"] == str(adapters["b"].path)
    assert "parent" not in models[MODEL_NAME]
    assert (await client.models.retrieve("c")).id == "c"


async def test_an_unknown_name_gets_a_404_that_names_what_exists(
    client: openai.AsyncOpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError, match="serves 'pando-tiny' and its adapters 'a', 'b'"):
        await client.completions.create(model="z", prompt="x", max_tokens=1)


async def test_every_api_takes_an_adapter_as_its_model(
    client: openai.AsyncOpenAI, http: aiohttp.ClientSession
) -> None:
    chat: Any = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    answered = await client.chat.completions.create(model="a", **chat)
    assert answered.model == "a"
    assert (await client.completions.create(model="b", prompt="x", max_tokens=2)).model == "b"
    chunks = [
        chunk
        async for chunk in await client.chat.completions.create(model="c", stream=True, **chat)
    ]
    assert {chunk.model for chunk in chunks} == {"c"}
    assert (await client.embeddings.create(model="a", input="x")).model == "a"
    for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [5]})):
        async with http.post(path, json={"model": "a", **body}) as answer:
            assert answer.status == 200
        async with http.post(path, json={"model": "z", **body}) as answer:
            assert answer.status == 404


async def test_logprobs_and_embeddings_are_those_of_peft(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter]
) -> None:
    for _ in range(2):  # the second one may use the cache
        scored: dict[str, Any] = {"return_logprob": True, "logprob_start_len": 0}
        meta = (await generate(http, "b", **scored))["meta_info"]
        entries = meta["input_token_logprobs"] + meta["output_token_logprobs"]
        ids = [token_id for _, token_id, _ in entries]
        expected = adapters["b"].logprobs(ids)[:-1].gather(1, torch.tensor(ids[1:])[:, None])
        found = torch.tensor([value for value, *_ in entries[1:]])
        torch.testing.assert_close(found, expected[:, 0], atol=2e-4, rtol=0)
    async with http.post("/v1/embeddings", json={"model": "a", "input": PROMPT}) as answer:
        vector = torch.tensor((await answer.json())["data"][0]["embedding"])
    torch.testing.assert_close(vector, adapters["a"].hidden(PROMPT), atol=2e-4, rtol=0)


async def test_grammars_and_several_choices_work_with_adapters(
    client: openai.AsyncOpenAI,
) -> None:
    async def ask(model: str) -> openai.types.Completion:
        return await client.completions.create(
            model=model,
            prompt="Return a list",
            max_tokens=30,
            n=3,
            temperature=1.5,
            seed=3,
            extra_body={"regex": "[0-9]{3}-[a-f]{2,4}"},
        )

    for model, done in zip("abc", await asyncio.gather(*map(ask, "abc")), strict=True):
        assert done.model == model
        assert len(done.choices) == 3
        assert all(re.fullmatch("[0-9]{3}-[a-f]{2,4}", choice.text) for choice in done.choices)


async def test_two_names_of_one_adapter_share_what_is_cached_and_no_others(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter], tmp_path: Path
) -> None:
    shutil.copytree(adapters["d"].path, tmp_path / "copy")
    assert await load(http, "d", adapters["d"].path) == (
        200,
        "Success: LoRA adapter 'd' added successfully.",
    )
    assert (await load(http, "d again", tmp_path / "copy"))[0] == 200
    prompt = [*range(20, 70)]
    cached = {}
    for name in (None, "a", "d", "d again"):
        cached[name] = (await generate(http, name, prompt))["meta_info"]["cached_tokens"]
    assert cached == {None: 0, "a": 0, "d": 0, "d again": 48}
    assert (await unload(http, "d"))[0] == 200
    again = await generate(http, "d again", prompt)
    assert again["meta_info"]["cached_tokens"] == 48
    assert again["output_ids"] == adapters["d"].greedy(prompt, COUNT)
    assert (await unload(http, "d again"))[0] == 200


async def test_replacing_an_adapter_under_load_mixes_nothing_and_fails_nothing(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter]
) -> None:
    first, second = (adapters[name].greedy(PROMPT, COUNT) for name in ("c", "d"))
    assert first != second
    assert (await load(http, "x", adapters["c"].path))[0] == 200
    answers: list[list[int]] = []
    is_replaced = asyncio.Event()

    async def ask() -> None:
        after = 0
        while after < 3:
            after += is_replaced.is_set()
            answers.append((await generate(http, "x"))["output_ids"])

    clients = [asyncio.create_task(ask()) for _ in range(6)]
    await until(lambda: _has(answers, 6))
    assert (await load(http, "x", adapters["d"].path))[0] == 400, "the name is taken"
    status, text = await load(http, "x", adapters["d"].path, load_inplace=True)
    assert (status, text) == (200, "Success: LoRA adapter 'x' added successfully.")
    is_replaced.set()
    later = await generate(http, "x")
    await asyncio.gather(*clients)
    assert later["output_ids"] == second
    assert first in answers
    assert second in answers
    assert all(answer in (first, second) for answer in answers)
    # What the first one computed is of no use for the second one.
    fresh = [77, *PROMPT]
    assert (await generate(http, "x", fresh))["meta_info"]["cached_tokens"] == 0
    assert (await load(http, "x", adapters["c"].path, load_inplace=True))[0] == 200
    assert (await generate(http, "x", fresh))["output_ids"] == adapters["c"].greedy(fresh, COUNT)
    assert (await unload(http, "x"))[0] == 200


async def _has(answers: list[list[int]], least: int) -> bool:
    return len(answers) >= least


async def test_unloading_waits_for_requests_and_refuses_new_ones(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter]
) -> None:
    assert (await load(http, "y", adapters["d"].path))[0] == 200
    long = {"max_new_tokens": 400, "temperature": 0, "ignore_eos": True}
    body = {"model": "y", "input_ids": PROMPT, "sampling_params": long, "stream": True}
    async with http.post("/generate", json=body) as answer:
        first = await answer.content.readline()
        assert b"output_ids" in first
        unloading = asyncio.create_task(unload(http, "y"))
        await until(lambda: _is_gone(http, "y"))
        assert not unloading.done()
        events = [line async for line in answer.content if line.startswith(b"data: {")]
    ids = json.loads(events[-1].removeprefix(b"data: "))["output_ids"]
    assert ids[:COUNT] == adapters["d"].greedy(PROMPT, COUNT)
    assert len(ids) == 400
    assert await unloading == (200, "Success: LoRA adapter 'y' removed successfully.")
    status, message = await unload(http, "y")
    assert (status, message) == (404, "there is no adapter 'y'; this worker has 'a', 'b', 'c'")


async def test_an_unload_gives_up_waiting_and_the_adapter_leaves_later() -> None:
    with WorkerProcess.start(drain_seconds=0) as worker:  # the least is 5 seconds
        async with aiohttp.ClientSession(worker.url) as http:
            assert (await load(http, "w", Path("a folder")))[0] == 200
            waits = {"max_new_tokens": 5, "seed": Trick.QUEUED}
            body = {"model": "w", "text": "a", "sampling_params": waits, "rid": "waits"}
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(_post_any(http, "/generate", body))
                await until(lambda: _is(metric(http, "pando_worker_running_requests"), 1))
                status, message = await unload(http, "w")
                assert (status, message) == (
                    409,
                    "1 requests still use adapter 'w' after 5 s. No further ones are accepted, and"
                    " it is unloaded when they have ended",
                )
                assert await _is_gone(http, "w")
                async with http.post("/abort_request", json={"rid": "waits"}) as answer:
                    assert (await answer.json()) == {"aborted": 1}
            assert (await load(http, "w", Path("a folder")))[0] == 200
            shown = {"max_new_tokens": 5, "seed": Trick.SHOWN}
            body = {"model": "w", "text": "a", "sampling_params": shown}
            status, message = await post(http, "/generate", **body)
            expected = blake2b(b"a folder", digest_size=16).digest()
            assert b64decode(json.loads(message)["adapter"]) == expected


async def _post_any(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with http.post(path, json=body) as answer:
        await answer.read()


async def _is_gone(http: aiohttp.ClientSession, name: str) -> bool:
    async with http.get(f"/v1/models/{name}") as answer:
        return answer.status == 404


async def test_what_cannot_be_loaded_is_refused_with_its_reason(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter], tmp_path: Path
) -> None:
    assert (await load(http, "n", tmp_path / "none"))[0] == 400
    broken = shutil.copytree(adapters["a"].path, tmp_path / "broken")
    config = json.loads((broken / "adapter_config.json").read_text())
    (broken / "adapter_config.json").write_text(json.dumps(config | {"use_dora": True}))
    status, message = await load(http, "n", broken)
    assert status == 400
    assert "DoRA" in message or "use_dora" in message
    path = adapters["a"].path
    for name, expected in (
        (MODEL_NAME, "is the name of the base model"),
        ("a", "has already been loaded"),
        ("", "1 to 200 printable characters"),
        ("x" * 201, "1 to 200 printable characters"),
        ("line\nbreak", "1 to 200 printable characters"),
    ):
        status, message = await load(http, name, path)
        assert (status, expected in message) == (400, True), message
    async with http.post("/v1/load_lora_adapter", json={"lora_name": "n"}) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "lora_path"
    assert await _is_gone(http, "n")


async def test_pins_leave_a_slot_for_the_others(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter]
) -> None:
    assert (await load(http, "p", adapters["d"].path, pin=True))[0] == 409, "d takes three pages"
    assert await _is_gone(http, "p")
    loads = await metric(http, "pando_worker_adapter_loads_total")
    assert (await load(http, "p", adapters["a"].path, pin=True))[0] == 200
    await generate(http, "b")
    await generate(http, "c")
    await generate(http, "p")
    await until(lambda: _is(metric(http, "pando_worker_free_adapter_slots"), 1))
    assert await metric(http, "pando_worker_adapter_loads_total") <= loads + 3
    assert (await unload(http, "p"))[0] == 200
    await until(lambda: _is(metric(http, "pando_worker_free_adapter_slots"), 2))


async def test_a_pinned_adapter_is_replaced_although_it_has_the_only_slot(
    adapters: dict[str, TinyAdapter], tmp_path: Path
) -> None:
    with WorkerProcess.start(
        stand_in=False,
        threads=1,
        max_loras=1,
        lora_modules=[f"a={adapters['a'].path}"],
        pinned_loras=["a"],
    ) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            assert (await load(http, "b", adapters["b"].path))[0] == 409, "no slot is left"
            assert (await load(http, "a", tmp_path / "none", load_inplace=True))[0] == 400
            assert (await load(http, "b", adapters["b"].path))[0] == 409, "it is pinned again"
            found = (await generate(http, "a"))["output_ids"]
            assert found == adapters["a"].greedy(PROMPT, COUNT)
            assert (await load(http, "a", adapters["b"].path, load_inplace=True))[0] == 200
            found = (await generate(http, "a"))["output_ids"]
            assert found == adapters["b"].greedy(PROMPT, COUNT)

            async def refuses_others() -> bool:
                status = (await load(http, "c", adapters["c"].path))[0]
                return status == 409 or (await unload(http, "c"))[0] != 200

            await until(refuses_others)


async def test_a_broken_adapter_ends_the_start_with_one_line(
    adapters: dict[str, TinyAdapter], tmp_path: Path
) -> None:
    modules = [f"a={adapters['a'].path}", f"none={tmp_path / 'none'}"]
    with WorkerProcess.start(
        ready=False, stand_in=False, threads=1, lora_modules=modules
    ) as worker:
        assert await worker.exit_code() == 1
        errors = [line for line in worker.log.splitlines() if line.startswith("ERROR")]
    [line] = errors
    assert "cannot serve this model: adapter 'none' of lora_modules: " in line
    assert str(tmp_path / "none") in line


async def test_two_ranks_take_turns_with_slots_and_give_the_tokens_of_peft(
    adapters: dict[str, TinyAdapter],
) -> None:
    with WorkerProcess.start(
        stand_in=False,
        threads=1,
        tensor_parallel_size=2,
        max_loras=1,
        lora_modules=[f"{name}={adapters[name].path}" for name in ("a", "b")],
    ) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            names = ["a", MODEL_NAME, "b", "a", "b"]
            prompts = [PROMPT[start:] for start in range(len(names))]
            answers = await asyncio.gather(*map(partial(generate, http), names, prompts))
    for name, prompt, answer in zip(names, prompts, answers, strict=True):
        reference = adapters[name].greedy if name in adapters else base_greedy
        assert answer["output_ids"] == reference(prompt, COUNT)


async def test_a_name_is_loaded_once_at_a_time(
    http: aiohttp.ClientSession, adapters: dict[str, TinyAdapter]
) -> None:
    path = adapters["d"].path
    results = await asyncio.gather(*(load(http, "once", path) for _ in range(4)))
    assert sorted(status for status, _ in results) == [200, 409, 409, 409]
    assert (await unload(http, "once"))[0] == 200
    assert await _is_gone(http, "once")


async def test_without_slots_there_are_no_adapters(adapters: dict[str, TinyAdapter]) -> None:
    with WorkerProcess.start(stand_in=False, threads=1) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            status, message = await load(http, "a", adapters["a"].path)
    assert status == 400
    assert "set max_loras" in message
