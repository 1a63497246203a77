"""Embeddings of the real engine, with OpenAI's client: they equal transformers' hidden states,
pooled and normalised, for a model that generates and for one without a head."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer, Qwen3Config, Qwen3Model

from tests.worker.server.process.worker_process import MODEL, WorkerProcess, metric, until
from tests.worker.server.text.tokenizers_for_tests import byte_level, save

pytestmark = pytest.mark.e2e

NAME = "embedder"
TEXTS = ["Return a new list of the names", "a", "Return a new list of the values " * 6]


@pytest.fixture(scope="module")
def engine() -> Iterator[WorkerProcess]:
    """The shipped model: it has a head, and its files do not specify pooling. Prompts run in
    chunks."""
    with WorkerProcess.start(
        stand_in=False, threads=1, served_model_name=NAME, chunked_prefill_size=64
    ) as worker:
        yield worker


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights in the form of sentence-transformers: without a head, and with
    the mean over all tokens as its embedding."""
    folder = tmp_path_factory.mktemp("model")
    save(byte_level(), folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    Qwen3Model(config).save_pretrained(folder)
    list_parts(folder, [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "")])
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


def list_parts(folder: Path, parts: Sequence[tuple[str, str]]) -> None:
    """Kinds and folders."""
    prefix = "sentence_transformers.models."
    modules = [{"type": prefix + kind, "path": path} for kind, path in parts]
    (folder / "modules.json").write_text(json.dumps(modules))


@asynccontextmanager
async def client_of(worker: WorkerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with worker.client() as client:
        yield client


def expected(model_dir: Path, texts: Sequence[str], *, mean: bool) -> list[list[float]]:
    pooled = torch.tensor(states(model_dir, texts, mean=mean), dtype=torch.float64)
    found: list[list[float]] = torch.nn.functional.normalize(pooled, dim=1).tolist()
    return found


def states(model_dir: Path, texts: Sequence[str], *, mean: bool = True) -> list[list[float]]:
    """Hidden states of transformers: the mean, or the last token's."""
    model = AutoModel.from_pretrained(model_dir, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    vectors = []
    for text in texts:
        with torch.no_grad():
            hidden = model(torch.tensor([tokenizer(text).input_ids])).last_hidden_state[0].double()
        pooled = hidden.mean(0) if mean else hidden[-1]
        vectors.append(pooled.tolist())
    return vectors


def assert_close(found: Sequence[Any], truth: list[list[float]]) -> None:
    given = torch.tensor([one.embedding for one in found], dtype=torch.float64)
    torch.testing.assert_close(given, torch.tensor(truth, dtype=torch.float64), atol=2e-5, rtol=0)


async def test_the_last_tokens_hidden_state_of_a_model_that_generates(
    engine: WorkerProcess,
) -> None:
    truth = expected(MODEL, TEXTS, mean=False)
    async with client_of(engine) as client:
        for _ in range(2):  # the second time most of each prompt is cached
            raw = await client.embeddings.with_raw_response.create(model=NAME, input=TEXTS)
            done = raw.parse()
            assert_close(done.data, truth)
        page = 16  # tokens; the last page of a prompt is not cached
        longest = len(AutoTokenizer.from_pretrained(MODEL)(TEXTS[2]).input_ids)
        assert int(raw.headers["x-pando-cached-tokens"]) >= longest - page
        assert int(raw.headers["x-pando-prompt-tokens"]) == done.usage.prompt_tokens
        # As numbers, in base64 (the client's default above), and fewer of them.
        done = await client.embeddings.create(model=NAME, input=TEXTS, encoding_format="float")
        assert_close(done.data, truth)
        done = await client.embeddings.create(model=NAME, input=TEXTS, dimensions=64)
        short = torch.tensor(truth)[:, :64]
        assert_close(done.data, (short / short.norm(dim=1, keepdim=True)).tolist())
        with pytest.raises(openai.BadRequestError, match="this model has only 192"):
            await client.embeddings.create(model=NAME, input=TEXTS, dimensions=193)


async def test_embeddings_and_generations_run_beside_each_other(engine: WorkerProcess) -> None:
    truth = expected(MODEL, TEXTS, mean=False)
    options: dict[str, Any] = {"model": NAME, "prompt": TEXTS[0], "max_tokens": 48}
    async with client_of(engine) as client:
        alone = await client.completions.create(**options, temperature=0)
        generating = asyncio.create_task(client.completions.create(**options, temperature=0))
        for _ in range(3):
            assert_close((await client.embeddings.create(model=NAME, input=TEXTS)).data, truth)
        assert (await generating).choices[0].text == alone.choices[0].text


async def test_a_client_that_leaves_frees_its_pages(engine: WorkerProcess) -> None:
    pinned = 'pando_worker_kv_tokens{state="pinned"}'
    inputs = [[1 + number, *range(3000)] for number in range(64)]
    async with aiohttp.ClientSession(engine.url) as http:

        async def runs() -> bool:
            return await metric(http, pinned) > 0

        async def is_idle() -> bool:
            numbers = (pinned, "pando_worker_running_requests", "pando_worker_waiting_requests")
            return not any([await metric(http, name) for name in numbers])

        await until(is_idle)  # metrics of earlier requests lag by a moment
        body = {"model": NAME, "input": inputs}
        waiting = asyncio.create_task(http.post("/v1/embeddings", json=body))
        await until(runs)
        waiting.cancel()
        await until(is_idle)
        assert await metric(http, "pando_worker_aborted_requests_total") > 0
    async with client_of(engine) as client:
        done = await client.embeddings.create(model=NAME, input=TEXTS[0])
    assert_close(done.data, expected(MODEL, TEXTS[:1], mean=False))


async def test_a_model_without_a_head_embeds_and_generates_nothing(base_model: Path) -> None:
    with WorkerProcess.start(
        stand_in=False, threads=1, model=str(base_model), served_model_name=NAME
    ) as worker:
        async with client_of(worker) as client, aiohttp.ClientSession(worker.url) as http:
            done = await client.embeddings.create(model=NAME, input=TEXTS)
            assert_close(done.data, expected(base_model, TEXTS, mean=True))
            body = {"text": "a", "model": NAME, "prompt": "a"}
            for path in ("/v1/completions", "/generate"):
                async with http.post(path, json=body) as answer:
                    error = (await answer.json())["error"]
                assert (answer.status, error["param"]) == (400, "model")
                assert "no head" in error["message"]


async def test_dense_layers_follow_the_pooling(base_model: Path) -> None:
    """In embeddings, fewer dimensions of them, and scores."""
    folder = base_model.parent / "with-dense"
    first, second = with_dense(base_model, folder)
    with torch.no_grad():
        pooled = torch.tensor(states(base_model, TEXTS), dtype=torch.float32)
        truth = torch.nn.functional.normalize(second(torch.tanh(first(pooled))), dim=1)
    with WorkerProcess.start(
        stand_in=False, threads=1, model=str(folder), served_model_name=NAME
    ) as worker:
        async with client_of(worker) as client, aiohttp.ClientSession(worker.url) as http:
            done = await client.embeddings.create(model=NAME, input=TEXTS)
            assert_close(done.data, truth.tolist())
            done = await client.embeddings.create(model=NAME, input=TEXTS, dimensions=8)
            short = torch.nn.functional.normalize(truth[:, :8], dim=1)
            assert_close(done.data, short.tolist())
            with pytest.raises(openai.BadRequestError, match="this model has only 24"):
                await client.embeddings.create(model=NAME, input=TEXTS, dimensions=25)
            body = {"model": NAME, "text_1": TEXTS[0], "text_2": TEXTS[1:]}
            async with http.post("/v1/score", json=body) as answer:
                scores = [one["score"] for one in (await answer.json())["data"]]
    assert scores == pytest.approx((truth[1:] @ truth[0]).tolist(), abs=2e-5)


def with_dense(model: Path, folder: Path) -> tuple[torch.nn.Linear, torch.nn.Linear]:
    """The model in another folder, with two layers behind its pooling."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "modules.json").unlink()
    parts = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    list_parts(folder, [*parts, ("Dense", "3_Dense"), ("Normalize", "4_Normalize")])
    return add_dense(folder, "2_Dense", 32, 48, "Tanh"), add_dense(folder, "3_Dense", 48, 24)


def add_dense(
    folder: Path, name: str, size: int, wanted: int, activation: str = "Identity"
) -> torch.nn.Linear:
    """As sentence-transformers saves one."""
    layer = torch.nn.Linear(size, wanted)
    (folder / name).mkdir()
    tensors = {f"linear.{key}": value for key, value in layer.state_dict().items()}
    save_file(tensors, folder / name / "model.safetensors")
    config = {
        "in_features": size,
        "out_features": wanted,
        "bias": True,
        "activation_function": f"torch.nn.modules.activation.{activation}",
    }
    (folder / name / "config.json").write_text(json.dumps(config))
    return layer


async def test_a_model_with_further_parts_says_so_and_generates(base_model: Path) -> None:
    # The shipped model with a list of modules that includes an unsupported one.
    folder = base_model.parent / "with-norm"
    folder.mkdir()
    for file in MODEL.iterdir():
        (folder / file.name).symlink_to(file)
    parts = [{"type": "sentence_transformers.models.LayerNorm", "path": "2_LayerNorm"}]
    (folder / "modules.json").write_text(json.dumps(parts))
    with WorkerProcess.start(model=str(folder), served_model_name=NAME) as worker:
        async with client_of(worker) as client:
            with pytest.raises(openai.BadRequestError, match=r"its modules\.json has LayerNorm"):
                await client.embeddings.create(model=NAME, input="a")
            done = await client.completions.create(model=NAME, prompt="a", max_tokens=1)
            assert done.choices
