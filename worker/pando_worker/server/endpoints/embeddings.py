"""POST /v1/embeddings, with one input or several, each text or token ids; or with a conversation,
which may have images.

Vectors have length 1, also those shortened to fewer `dimensions`. A request has at most as many
inputs in the scheduler as can run at once, so that no request fills the queue by itself.
"""

import asyncio
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, structs
from starlette.responses import Response

from pando_worker.messages import Embed, Embedded, Pooling
from pando_worker.server.answers.openai_objects import PromptTokensDetails
from pando_worker.server.errors import bad_request, deadline_passed
from pando_worker.server.images import ChatPrompt
from pando_worker.server.jobs.prompts import check_priority, fitting, room_for
from pando_worker.server.pooling import NoEmbeddings
from pando_worker.server.protocol.cache_salt import namespace_of
from pando_worker.server.protocol.completions import prompts_of
from pando_worker.server.protocol.deadline import remaining_s
from pando_worker.server.protocol.embeddings import EmbeddingRequest
from pando_worker.server.service import Service
from pando_worker.server.text.long_texts import Room

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
    router = APIRouter()

    @router.post("/v1/embeddings", response_model=None)
    async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
        model = service.use_model(request, body.model)
        check_priority(service, body.priority or 0)
        pooling = _pooling(service)
        _check_dimensions(body.dimensions, service.model.hidden_size)
        prompts = await _prompts(service, body)
        like = Embed(
            rid=request.state.request_id,
            input_ids=[],
            pooling=pooling,
            priority=body.priority or 0,
            namespace=namespace_of(request, body.cache_salt),
            adapter=model.identity,
            deadline_s=remaining_s(request, service.settings.request_timeout_seconds),
        )
        job = _Job(service, body, like, received=request.state.received)
        return _answer(model.name, prompts, await job.run(prompts))

    return router


def _pooling(service: Service) -> Pooling:
    pooling = service.model.pooling
    if isinstance(pooling, NoEmbeddings):
        raise bad_request(f"this model does not support embeddings: {pooling.reason}", "model")
    return pooling


async def _prompts(service: Service, body: EmbeddingRequest) -> list[ChatPrompt]:
    keep_last = body.truncate_prompt_tokens
    if body.input is None:
        room = room_for(service, "messages", keep_last=keep_last, output=0)
        prompt = await _conversation(service, body, room)
        return [replace(prompt, token_ids=fitting(service, prompt.token_ids, room, output=0))]
    room = room_for(service, "input", keep_last=keep_last, output=0)
    return [
        ChatPrompt(fitting(service, prompt, room, output=0))
        for prompt in await service.encode_all(prompts_of(body.input), room)
    ]


async def _conversation(service: Service, body: EmbeddingRequest, room: Room) -> ChatPrompt:
    messages = list(body.messages or ())
    continued = messages.pop() if body.continue_final_message else None
    return await service.encode_messages(
        messages,
        room,
        add_generation_prompt=continued is not None or body.add_generation_prompt,
        answer=continued.text if continued else "",
        template_kwargs=body.chat_template_kwargs,
    )


@dataclass(slots=True)
class _EmbeddedInput:
    """One input's part of the answer."""

    json: msgspec.Raw
    cached_tokens: int


class _Job:
    """The inputs of a request, each sent to the scheduler as a copy of the given `Embed`."""

    def __init__(
        self, service: Service, body: EmbeddingRequest, like: Embed, *, received: float
    ) -> None:
        self._service = service
        self._body = body
        self._like = like
        self._received = received
        limit_s = like.deadline_s
        self._end = None if limit_s is None else time.monotonic() + limit_s
        self._slots = asyncio.Semaphore(service.ready.max_running_requests)

    async def run(self, prompts: Sequence[ChatPrompt]) -> list[_EmbeddedInput]:
        """Raises ApiError if one of them fails, after aborting the others."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._one(index, prompt))
                    for index, prompt in enumerate(prompts)
                ]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, index: int, prompt: ChatPrompt) -> _EmbeddedInput:
        async with self._slots:
            embed = structs.replace(
                self._like,
                input_ids=prompt.token_ids,
                images=prompt.images,
                deadline_s=self._remaining_s(),
            )
            embedded = await self._service.engine.embed(embed)
        self._service.metrics.queue_time.observe(embedded.queue_s)
        self._service.metrics.request_duration.observe(time.monotonic() - self._received)
        # Encoded one by one as they arrive: all at once would delay streams for seconds.
        vector = _shortened(embedded, self._body.dimensions)
        written = _Embedding(index, _written(vector, self._body.encoding_format))
        return _EmbeddedInput(msgspec.Raw(msgspec.json.encode(written)), embedded.cached_tokens)

    def _remaining_s(self) -> float | None:
        if self._end is None:
            return None
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise deadline_passed("the request's deadline passed before all inputs were scheduled")
        return left_s


def _check_dimensions(wanted: int | None, available: int | None) -> None:
    if wanted is not None and available is not None and wanted > available:
        raise bad_request(f"dimensions is {wanted}; this model has only {available}", "dimensions")


def _shortened(embedded: Embedded, dimensions: int | None) -> "Float32":
    # Imported here: it takes a tenth of a second, and most workers embed nothing.
    import numpy as np

    vector = np.frombuffer(embedded.vector, dtype="<f4")
    if dimensions is None or dimensions == len(vector):
        return vector
    _check_dimensions(dimensions, len(vector))
    cut = vector[:dimensions]
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
