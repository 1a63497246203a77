"""The texts of a request that are embedded or classified: what they have in common, their prompts,
and how all of them run."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from fastapi import Request
from msgspec import structs

from pando_worker.messages import Embed, Embedded
from pando_worker.server.errors import deadline_passed
from pando_worker.server.images import ChatPrompt
from pando_worker.server.jobs.prompts import fitting, priority_of, room_for
from pando_worker.server.pooling import Embeddings
from pando_worker.server.protocol.chats.chat import text_of
from pando_worker.server.protocol.completions import prompts_of
from pando_worker.server.protocol.headers.cache_salt import namespace_of
from pando_worker.server.protocol.headers.deadline import remaining_s
from pando_worker.server.protocol.pooled.fields import InputsRequest, PooledFields
from pando_worker.server.service import AskedModel, Service
from pando_worker.server.text.long_texts import Room

T = TypeVar("T")


def empty_text(
    service: Service, request: Request, body: PooledFields, model: AskedModel, wanted: Embeddings
) -> Embed:
    """What all texts of a request have in common: all but their tokens.

    Raises ApiError 400 for a priority that cannot be honoured.
    """
    return Embed(
        rid=request.state.request_id,
        input_ids=[],
        pooling=wanted.pooling,
        is_normalized=wanted.is_pooled_normalized,
        priority=priority_of(service, request, body.priority or 0),
        namespace=namespace_of(request, body.cache_salt),
        adapter=model.identity,
    )


async def input_prompts(service: Service, body: InputsRequest) -> list[ChatPrompt]:
    """Of each input, or of the conversation. Raises ApiError 400 for one that is too long."""
    keep = body.truncate_prompt_tokens
    if body.input is None:
        room = room_for(service, "messages", keep_last=keep, output=0)
        prompt = await _conversation(service, body, room)
        return [replace(prompt, token_ids=fitting(service, prompt.token_ids, room, output=0))]
    room = room_for(service, "input", keep_last=keep, output=0)
    return [
        ChatPrompt(fitting(service, prompt, room, output=0))
        for prompt in await service.encode_all(prompts_of(body.input), room)
    ]


async def _conversation(service: Service, body: InputsRequest, room: Room) -> ChatPrompt:
    messages = list(body.messages or ())
    continued = messages.pop() if body.continue_final_message else None
    return await service.encode_messages(
        messages,
        room,
        add_generation_prompt=continued is not None or body.add_generation_prompt,
        answer=text_of(continued) if continued else "",
        template_kwargs=body.chat_template_kwargs,
    )


async def run_pooled(
    service: Service,
    request: Request,
    texts: Sequence[Embed],
    use: Callable[[int, Embedded], T],
) -> list[T]:
    """What `use` makes of each text's number and vector. At most as many texts are in the scheduler
    as can run at once, so that no request fills the queue by itself.

    Raises ApiError if one of them fails, after aborting the others; and 504 if the request's time,
    which began when it arrived, ends before all of them are scheduled.
    """
    job = _Job(service, request)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(job.one(text, index, use)) for index, text in enumerate(texts)
            ]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


class _Job:
    def __init__(self, service: Service, request: Request) -> None:
        self._service = service
        self._received: float = request.state.received
        limit_s = remaining_s(request, service.settings.request_timeout_seconds)
        self._end = None if limit_s is None else time.monotonic() + limit_s
        self._slots = asyncio.Semaphore(service.ready.max_running_requests)

    async def one(self, text: Embed, index: int, use: Callable[[int, Embedded], T]) -> T:
        async with self._slots:
            embed = structs.replace(text, deadline_s=self._remaining_s())
            embedded = await self._service.engine.embed(embed)
        self._service.metrics.queue_time.observe(embedded.queue_s)
        self._service.metrics.request_duration.observe(time.monotonic() - self._received)
        # Used one by one as they arrive: all at once would delay streams for seconds.
        return use(index, embedded)

    def _remaining_s(self) -> float | None:
        if self._end is None:
            return None
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise deadline_passed("the request's deadline passed before all inputs were scheduled")
        return left_s
