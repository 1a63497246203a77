"""/rerank, /score and /classify of the real engine, for cross-encoders, classifiers and models that
embed: transformers' scores for the same pairs."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.text_encoder.checkpoints import CASES, save

pytestmark = pytest.mark.e2e

QUERY = "the quick fox"
DOCUMENTS = ["trees grow slowly", "the lazy dog jumps over the fox", "stones", "the " * 100]
FITTING = DOCUMENTS[:3]


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = CASES["bert"]
    return save(tmp_path_factory.mktemp("cross"), case.classifier(1), case.tokenizer())


@pytest.fixture(scope="module")
def labelling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = CASES["modernbert"]
    path = save(tmp_path_factory.mktemp("labels"), case.classifier(3), case.tokenizer())
    template = "{% for turn in messages %}{{ turn.content }} {% endfor %}"
    (path / "chat_template.jinja").write_text(template)
    return path


@pytest.fixture(scope="module")
def cross_worker(cross: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess.start(stand_in=False, threads=1, model=str(cross)) as process:
        yield process


@pytest.fixture
async def http(cross_worker: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cross_worker.url) as session:
        yield session


async def post(http: aiohttp.ClientSession, path: str, **body: Any) -> tuple[int, Any]:
    async with http.post(path, json=body) as answer:
        return answer.status, await answer.json()


def logits(path: Path, pairs: list[tuple[str, str]], longest: int | None = None) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    found = []
    with torch.inference_mode():
        for first, second in pairs:
            # Tiny checkpoints' tokenizers do not name types among a model's inputs.
            read = tokenizer(
                first,
                second,
                truncation=longest is not None,
                max_length=longest,
                return_token_type_ids=True,
                return_tensors="pt",
            )
            found.append(model(**read).logits[0])
    return torch.stack(found)


async def test_documents_are_ranked_by_transformers_scores(
    http: aiohttp.ClientSession, cross: Path
) -> None:
    scores = logits(cross, [(QUERY, one) for one in FITTING]).sigmoid()[:, 0].tolist()
    order = sorted(range(3), key=lambda index: -scores[index])
    for path in ("/v1/rerank", "/rerank"):
        status, found = await post(http, path, query=QUERY, documents=FITTING)
        assert status == 200
        assert [one["index"] for one in found["results"]] == order
        for one in found["results"]:
            assert one["relevance_score"] == pytest.approx(scores[one["index"]], abs=1e-5)
            assert one["document"] == {"text": FITTING[one["index"]]}
        assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 0
    given = [{"text": one} for one in FITTING]
    _, found = await post(
        http, "/rerank", query=QUERY, documents=given, top_n=2, return_documents=False
    )
    assert [one["index"] for one in found["results"]] == order[:2]
    assert all("document" not in one for one in found["results"])


async def test_long_pairs_are_refused_or_truncated_as_in_transformers(
    http: aiohttp.ClientSession, cross: Path
) -> None:
    status, found = await post(http, "/rerank", query=QUERY, documents=DOCUMENTS)
    assert (status, found["error"]["code"]) == (400, "context_length_exceeded")
    for keep in (40, 9, 4):
        pairs = [(QUERY, one) for one in DOCUMENTS] + [(DOCUMENTS[3], DOCUMENTS[3])]
        expected = logits(cross, pairs, keep)[:, 0].tolist()
        status, found = await post(
            http,
            "/score",
            text_1=[first for first, _ in pairs],
            text_2=[second for _, second in pairs],
            truncate_prompt_tokens=keep,
            use_activation=False,
        )
        assert status == 200
        assert [one["score"] for one in found["data"]] == pytest.approx(expected, abs=1e-4)


async def test_scores_are_of_one_text_and_many_or_of_pairs(
    http: aiohttp.ClientSession, cross: Path
) -> None:
    one = logits(cross, [(QUERY, text) for text in FITTING]).sigmoid()[:, 0].tolist()
    paired = logits(cross, list(zip(FITTING[::-1], FITTING, strict=True))).sigmoid()[:, 0].tolist()
    for body, expected in (
        ({"text_1": QUERY, "text_2": FITTING}, one),
        ({"queries": QUERY, "documents": FITTING}, one),
        ({"text_1": QUERY, "text_2": FITTING[0]}, one[:1]),
        ({"text_1": FITTING[::-1], "text_2": FITTING}, paired),
    ):
        for path in ("/score", "/v1/score"):
            status, found = await post(http, path, **body)
            assert (status, found["object"]) == (200, "list")
            assert [each["index"] for each in found["data"]] == list(range(len(expected)))
            scores = [each["score"] for each in found["data"]]
            assert scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/rerank", {"query": QUERY, "documents": []}, "documents"),
        ("/rerank", {"query": QUERY, "documents": [3]}, "documents"),
        ("/rerank", {"documents": ["a"]}, "query"),
        ("/rerank", {"query": QUERY, "documents": ["a"] * 2049}, "documents"),
        ("/rerank", {"query": QUERY, "documents": ["a"], "top_n": -1}, "top_n"),
        ("/rerank", {"query": "\ud800", "documents": ["a"]}, "documents"),
        ("/score", {"text_1": "a"}, "text_1"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ("/score", {"text_1": "a", "text_2": ["a"] * 2049}, "text_2"),
        ("/score", {"text_1": "a", "text_2": "b", "truncate_prompt_tokens": 0}, None),
        ("/classify", {}, "input"),
        ("/classify", {"input": "a", "messages": [{"role": "user", "content": "a"}]}, "input"),
        ("/classify", {"input": ["a"] * 2049}, "input"),
        ("/v1/embeddings", {"model": None, "input": "a"}, "model"),
    ],
)
async def test_bad_requests_get_400(
    http: aiohttp.ClientSession, path: str, body: dict[str, Any], param: str | None
) -> None:
    status, found = await post(http, path, **body)
    assert status == 400
    error = found["error"]
    if param:
        assert (error["param"] or "").startswith(param), error


async def test_labels_have_transformers_probabilities(labelling: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(labelling)
    model = AutoModelForSequenceClassification.from_pretrained(labelling).eval()
    with torch.inference_mode():
        raw = torch.stack(
            [model(torch.tensor([tokenizer(text).input_ids])).logits[0] for text in FITTING]
        )
        talk = f"{FITTING[0]} {FITTING[2]}"  # the template's text, and the continued answer
        ids = tokenizer(talk, add_special_tokens=False).input_ids
        talked = model(torch.tensor([ids])).logits[0].softmax(0)
    with WorkerProcess.start(stand_in=False, threads=1, model=str(labelling)) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            async with http.get("/health_generate") as answer:
                assert answer.status == 200
            for path in ("/classify", "/v1/classify"):
                status, found = await post(http, path, input=FITTING)
                assert status == 200
                for index, one in enumerate(found["data"]):
                    expected = raw[index].softmax(0)
                    assert one["probs"] == pytest.approx(expected.tolist(), abs=1e-5)
                    assert one["label"] == f"LABEL_{int(expected.argmax())}"
                    assert (one["index"], one["num_classes"]) == (index, 3)
            _, found = await post(http, "/classify", input=FITTING[0], use_activation=False)
            assert found["data"][0]["probs"] == pytest.approx(raw[0].tolist(), abs=1e-4)
            messages = [
                {"role": "user", "content": FITTING[0]},
                {"role": "assistant", "content": FITTING[2]},
            ]
            status, found = await post(
                http, "/classify", messages=messages, continue_final_message=True
            )
            assert status == 200, found
            assert found["data"][0]["probs"] == pytest.approx(talked.tolist(), abs=1e-5)
            status, found = await post(http, "/rerank", query="a", documents=["b"])
            assert status == 400 and "3 labels" in found["error"]["message"]
