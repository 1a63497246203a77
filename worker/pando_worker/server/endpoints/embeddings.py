"""POST /v1/embeddings, with one input or several, each text or token ids; or with a conversation,
which may have images.

Vectors have length 1, also those shortened to fewer `dimensions`, unless the model's files say that
its vectors are not normalized.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, structs
from starlette.responses import Response

from pando_worker.messages import Embedded
from pando_worker.server.answers.openai_objects import PromptTokensDetails
from pando_worker.server.errors import bad_request
from pando_worker.server.front.json_bodies import JsonRoute
from pando_worker.server.images import ChatPrompt
from pando_worker.server.jobs.pooled import empty_text, input_prompts, run_pooled
from pando_worker.server.pooling import Embeddings, NoEmbeddings
from pando_worker.server.protocol.pooled.embeddings import EmbeddingRequest
from pando_worker.server.service import Service

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float32 = NDArray[np.float32]


class _Embedding(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[msgspec.Raw]
    model: str
    usage: _Usage


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/embeddings", response_model=None)
    async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
        model = service.use_model(request, body.model)
        pooling = _pooling(service)
        _check_dimensions(body.dimensions, pooling.size or service.model.hidden_size)
        like = empty_text(service, request, body, model, pooling)
        prompts = await input_prompts(service, body)
        texts = [
            structs.replace(like, input_ids=prompt.token_ids, images=prompt.images)
            for prompt in prompts
        ]

        def written(index: int, embedded: Embedded) -> _EmbeddedInput:
            vector = _shortened(pooling, embedded.vector, body.dimensions)
            one = _Embedding(index, _written(vector, body.encoding_format))
            return _EmbeddedInput(msgspec.Raw(msgspec.json.encode(one)), embedded.cached_tokens)

        parts = await run_pooled(service, request, texts, written)
        return _answer(model.name, prompts, parts)

    return router


def _pooling(service: Service) -> Embeddings:
    pooling = service.model.pooling
    if isinstance(pooling, NoEmbeddings):
        raise bad_request(f"this model does not support embeddings: {pooling.reason}", "model")
    return pooling


@dataclass(slots=True)
class _EmbeddedInput:
    """One input's part of the answer."""

    json: msgspec.Raw
    cached_tokens: int


def _check_dimensions(wanted: int | None, available: int | None) -> None:
    if wanted is not None and available is not None and wanted > available:
        raise bad_request(f"dimensions is {wanted}; this model has only {available}", "dimensions")


def _shortened(pooling: Embeddings, pooled: bytes, dimensions: int | None) -> "Float32":
    # Imported here: it takes a tenth of a second, and most workers embed nothing.
    import numpy as np

    vector = pooling.vector(pooled)
    if dimensions is None or dimensions == len(vector):
        return vector
    _check_dimensions(dimensions, len(vector))
    cut = vector[:dimensions]
    if not pooling.is_normalized:
        return cut
    length = np.linalg.norm(cut)
    if length == 0:
        raise bad_request(f"the first {dimensions} dimensions are all zero", "dimensions")
    shortened: Float32 = (cut / length).astype("<f4")
    return shortened


def _written(vector: "Float32", form: str | None) -> list[float] | str:
    if form == "base64":
        return b64encode(vector.tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers


def _answer(model: str, prompts: Sequence[ChatPrompt], parts: list[_EmbeddedInput]) -> Response:
    tokens = sum(len(prompt.token_ids) for prompt in prompts)
    cached = sum(part.cached_tokens for part in parts)
    details = PromptTokensDetails(
        cached,
        sum(prompt.image_tokens for prompt in prompts) or UNSET,
        sum(prompt.video_tokens for prompt in prompts) or UNSET,
    )
    usage = _Usage(tokens, tokens, details)
    answer = _Answer(data=[part.json for part in parts], model=model, usage=usage)
    return Response(
        msgspec.json.encode(answer),
        media_type="application/json",
        headers={"x-pando-prompt-tokens": str(tokens), "x-pando-cached-tokens": str(cached)},
    )
