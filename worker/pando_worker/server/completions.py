"""POST /v1/completions, of a text or of token ids."""

import time
from dataclasses import dataclass

from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType

from pando_worker.server.answer import Answer, Result
from pando_worker.server.generation import Delta, generate
from pando_worker.server.openai_objects import Completion, CompletionChoice, Usage, usage_of
from pando_worker.server.protocol import CompletionRequest
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions", response_model=None)
    async def completions(body: CompletionRequest, request: Request) -> Answer:
        service.model.check_name(body.model)
        prompt = body.prompt
        input_ids = await service.encode(prompt) if isinstance(prompt, str) else prompt
        job = service.job(
            request, body, input_ids, prompt_param="prompt", max_tokens=body.max_tokens
        )
        form = _CompletionForm(
            id=f"cmpl-{request.state.request_id}",
            model=service.model.name,
            created=int(time.time()),
            include_usage=bool(body.stream_options and body.stream_options.include_usage),
        )
        deltas = generate(service.engine, service.model.tokenizer.vocabulary, job, service.metrics)
        return Answer(deltas, form, prompt_tokens=len(input_ids), stream=body.stream)

    return router


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionForm:
    id: str
    model: str
    created: int
    include_usage: bool

    def whole(self, result: Result) -> Completion:
        assert result.finish is not None
        choice = CompletionChoice(0, result.text, result.finish.reason)
        return self._of([choice], usage_of(result))

    def events(self, delta: Delta, result: Result) -> list[object]:
        events: list[object] = []
        if delta.text or delta.finish:
            finish = delta.finish.reason if delta.finish else None
            choice = CompletionChoice(0, delta.text, finish)
            events.append(self._of([choice], None if self.include_usage else UNSET))
        if delta.finish and self.include_usage:
            events.append(self._of([], usage_of(result)))
        return events

    def _of(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(
            id=self.id, created=self.created, model=self.model, choices=choices, usage=usage
        )
