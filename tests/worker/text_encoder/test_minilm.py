"""all-MiniLM-L6-v2, from its Python package, behind the API: its embeddings are those that
transformers computes, pooled and normalised as the model's files say."""

import asyncio
from collections.abc import Iterator

import aiohttp
import openai
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pando_worker.models.loading.hub import resolve_model
from pando_worker.runner.encoder_runner import EncoderRunner
from pando_worker.settings import WorkerSettings
from tests.worker.server.process.worker_process import WorkerProcess, metric, until

pytestmark = pytest.mark.e2e

NAME = "all-minilm-l6-v2"
TEXTS = [
    "A tree grows in the garden.",
    "An oak stands behind the house.",
    "The interest rate was raised by the central bank in March.",
    "naïve café, 東京",
    "long " * 200,
]


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(stand_in=False, threads=1, model=NAME) as process:
        yield process


@pytest.fixture(scope="module")
def truth() -> torch.Tensor:
    """[texts, 384], computed one by one."""
    path = resolve_model(NAME)
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()
    with torch.inference_mode():
        pooled = [
            model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].double().mean(0)
            for text in TEXTS
        ]
    return torch.stack([vector / vector.norm() for vector in pooled])


def vectors(done: openai.types.CreateEmbeddingResponse) -> torch.Tensor:
    return torch.tensor([one.embedding for one in done.data], dtype=torch.float64)


async def test_embeddings_are_those_of_transformers(
    worker: WorkerProcess, truth: torch.Tensor
) -> None:
    async with worker.client() as client:
        for form in (openai.omit, "float"):  # in base64, and as numbers
            done = await client.embeddings.create(model=NAME, input=TEXTS, encoding_format=form)
            torch.testing.assert_close(vectors(done), truth, atol=1e-6, rtol=0)
        done = await client.embeddings.create(model=NAME, input=TEXTS, dimensions=64)
        short = truth[:, :64] / truth[:, :64].norm(dim=1, keepdim=True)
        torch.testing.assert_close(vectors(done), short, atol=1e-6, rtol=0)


async def test_many_clients_at_once_get_their_own_vectors(
    worker: WorkerProcess, truth: torch.Tensor
) -> None:
    async with worker.client() as client:

        async def ask(index: int) -> None:
            done = await client.embeddings.create(model=NAME, input=TEXTS[index])
            torch.testing.assert_close(vectors(done)[0], truth[index], atol=1e-6, rtol=0)

        await asyncio.gather(*(ask(index % len(TEXTS)) for index in range(40)))


async def test_it_is_healthy_and_holds_nothing_and_generates_nothing(
    worker: WorkerProcess,
) -> None:
    async with aiohttp.ClientSession(worker.url) as http:
        for path in ("/health", "/health_generate", "/v1/models"):
            async with http.get(path) as answer:
                assert answer.status == 200

        async def holds_nothing() -> bool:
            return await metric(http, 'pando_worker_kv_tokens{state="pinned"}') == 0

        await until(holds_nothing)  # metrics lag by a moment
        async with http.post("/v1/completions", json={"model": NAME, "prompt": "a"}) as answer:
            error = (await answer.json())["error"]
        assert (answer.status, error["param"]) == (400, "model")
        body = {"model": NAME, "input": "a " * 300}
        async with http.post("/v1/embeddings", json=body) as answer:
            error = (await answer.json())["error"]
        # sentence_bert_config.json says how long a text may be.
        assert answer.status == 400 and "256 tokens" in error["message"]


async def test_pairs_are_scored_and_documents_ranked_by_their_cosine(
    worker: WorkerProcess, truth: torch.Tensor
) -> None:
    cosines = (truth[:1] @ truth[1:4].T)[0].tolist()
    async with aiohttp.ClientSession(worker.url) as http:
        body: dict[str, object] = {"model": NAME, "text_1": TEXTS[0], "text_2": TEXTS[1:4]}
        async with http.post("/score", json=body) as answer:
            found = await answer.json()
        assert [one["score"] for one in found["data"]] == pytest.approx(cosines, abs=1e-6)
        body = {"model": NAME, "query": TEXTS[0], "documents": TEXTS[1:4]}
        async with http.post("/v1/rerank", json=body) as answer:
            found = await answer.json()
        order = sorted(range(3), key=lambda index: -cosines[index])
        assert [one["index"] for one in found["results"]] == order
        async with http.post("/classify", json={"model": NAME, "input": "a"}) as answer:
            error = (await answer.json())["error"]
        assert (answer.status, error["param"]) == (400, "model")


async def test_truncated_texts_keep_their_beginning_and_the_marks_around_it(
    worker: WorkerProcess,
) -> None:
    path = resolve_model(NAME)
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()
    text = "word " * 20_000 + TEXTS[0]
    async with worker.client() as client:
        for keep, longest in ((20, 20), (3, 3), (-1, 256)):
            read = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
            with torch.inference_mode():
                pooled = model(**read).last_hidden_state[0].double().mean(0)
            more = {"truncate_prompt_tokens": keep}
            done = await client.embeddings.create(model=NAME, input=text, extra_body=more)
            expected = pooled / pooled.norm()
            torch.testing.assert_close(vectors(done)[0], expected, atol=1e-6, rtol=0)
            assert done.usage.prompt_tokens == longest


def test_matrices_that_are_packed_count_as_weights() -> None:
    path = resolve_model(NAME)
    runner = EncoderRunner(WorkerSettings(model=str(path), device="cpu", threads=1))
    model = AutoModel.from_pretrained(path, dtype=torch.float32)
    own = (one for name, one in model.named_parameters() if not name.startswith("pooler."))
    assert runner.pools.weight_bytes == sum(one.nbytes for one in own)
