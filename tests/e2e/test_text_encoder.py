"""all-MiniLM-L6-v2 in a whole fleet: embeddings, ranks and scores through the router."""

import aiohttp
import pytest

from tests.e2e.up_process import UpProcess

pytestmark = pytest.mark.e2e

NAME = "all-minilm-l6-v2"
QUERY = "Which tree grows fastest?"
DOCUMENTS = ["Interest rates rose in March.", "Poplars grow faster than other trees."]


async def test_texts_are_embedded_ranked_and_scored_through_the_router() -> None:
    with UpProcess("--model", NAME) as process:
        process.wait_ready()
        async with aiohttp.ClientSession(process.url) as http:

            async def post(path: str, **body: object) -> dict[str, list[dict[str, float]]]:
                async with http.post(path, json={"model": NAME, **body}) as answer:
                    assert answer.status == 200, await answer.text()
                    assert answer.headers["x-pando-cached-tokens"] == "0"
                    found: dict[str, list[dict[str, float]]] = await answer.json()
                return found

            [vector] = (await post("/v1/embeddings", input=QUERY))["data"]
            assert len(vector["embedding"]) == 384  # type: ignore[arg-type]
            ranked = (await post("/v1/rerank", query=QUERY, documents=DOCUMENTS))["results"]
            assert [one["index"] for one in ranked] == [1, 0]
            scored = (await post("/score", text_1=QUERY, text_2=DOCUMENTS))["data"]
            by_index = {one["index"]: one["relevance_score"] for one in ranked}
            assert [one["score"] for one in scored] == pytest.approx([by_index[0], by_index[1]])
            async with http.post("/classify", json={"model": NAME, "input": "a"}) as answer:
                assert answer.status == 404  # no replica of the model serves this
