"""POST /v1/chat/completions."""

import time
from dataclasses import dataclass

from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType

from pando_worker.messages import FinishReason
from pando_worker.server.answer import Answer, Result
from pando_worker.server.generation import Delta, generate
from pando_worker.server.openai_objects import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    Message,
    MessageDelta,
    Usage,
    usage_of,
)
from pando_worker.server.protocol import ChatRequest
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Answer:
        service.model.check_name(body.model)
        input_ids = await service.encode_chat(body)
        job = service.job(
            request,
            body,
            input_ids,
            prompt_param="messages",
            max_tokens=body.max_completion_tokens or body.max_tokens,
        )
        form = _ChatForm(
            id=f"chatcmpl-{request.state.request_id}",
            model=service.model.name,
            created=int(time.time()),
            include_usage=bool(body.stream_options and body.stream_options.include_usage),
        )
        deltas = generate(service.engine, service.model.tokenizer.vocabulary, job, service.metrics)
        return Answer(deltas, form, prompt_tokens=len(input_ids), stream=body.stream)

    return router


@dataclass(slots=True, kw_only=True)
class _ChatForm:
    id: str
    model: str
    created: int
    include_usage: bool
    role_sent: bool = False

    def whole(self, result: Result) -> ChatCompletion:
        assert result.finish is not None
        choice = ChatChoice(0, Message(result.text), result.finish.reason)
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[choice],
            usage=usage_of(result),
        )

    def events(self, delta: Delta, result: Result) -> list[object]:
        events: list[object] = []
        if not self.role_sent:
            self.role_sent = True
            events.append(self._chunk(MessageDelta(role="assistant", content="")))
        if delta.text:
            events.append(self._chunk(MessageDelta(content=delta.text)))
        if delta.finish:
            events.append(self._chunk(MessageDelta(), delta.finish.reason))
            if self.include_usage:
                events.append(self._of([], usage_of(result)))
        return events

    def _chunk(self, delta: MessageDelta, finish: FinishReason | None = None) -> ChatChunk:
        no_usage = None if self.include_usage else UNSET
        return self._of([ChatChunkChoice(0, delta, finish)], no_usage)

    def _of(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> ChatChunk:
        return ChatChunk(
            id=self.id, created=self.created, model=self.model, choices=choices, usage=usage
        )
