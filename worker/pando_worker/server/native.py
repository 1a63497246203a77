"""POST /generate, SGLang's own form: text or token ids in, text and token ids out.

A stream's events hold the text and ids of all that was generated so far, as SGLang's do.
"""

from dataclasses import dataclass

import msgspec
from fastapi import APIRouter, Request

from pando_worker.messages import FinishReason
from pando_worker.server.answer import Answer, Result
from pando_worker.server.generation import Delta, Finish, generate
from pando_worker.server.protocol import NativeRequest
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/generate", response_model=None)
    async def generate_natively(body: NativeRequest, request: Request) -> Answer:
        service.model.check_name(body.model)
        if body.input_ids is not None:
            input_ids, param = body.input_ids, "input_ids"
        else:
            input_ids, param = await service.encode(body.text or ""), "text"
        name = body.rid or request.state.request_id
        job = service.job(
            request,
            body.sampling_params,
            input_ids,
            prompt_param=param,
            max_tokens=body.sampling_params.max_new_tokens,
            name=name,
        )
        deltas = generate(service.engine, service.model.tokenizer.vocabulary, job, service.metrics)
        return Answer(deltas, _NativeForm(name), prompt_tokens=len(input_ids), stream=body.stream)

    return router


class _FinishReason(msgspec.Struct, frozen=True, omit_defaults=True):
    type: FinishReason
    matched: int | str | None = None  # of type stop
    length: int | None = None  # of type length
    message: str | None = None  # of type abort


class _MetaInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    finish_reason: _FinishReason | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class _Generated(msgspec.Struct, frozen=True):
    text: str
    output_ids: list[int]
    meta_info: _MetaInfo


@dataclass(frozen=True, slots=True)
class _NativeForm:
    name: str

    def whole(self, result: Result) -> _Generated:
        finish = result.finish
        return _Generated(
            result.text,
            result.token_ids,
            _MetaInfo(
                id=self.name,
                finish_reason=_finish_reason(finish, result) if finish else None,
                prompt_tokens=result.prompt_tokens,
                completion_tokens=len(result.token_ids),
                cached_tokens=result.cached_tokens,
            ),
        )

    def events(self, delta: Delta, result: Result) -> list[object]:
        return [self.whole(result)]


def _finish_reason(finish: Finish, result: Result) -> _FinishReason:
    match finish.reason:
        case FinishReason.STOP:
            return _FinishReason(finish.reason, matched=finish.matched)
        case FinishReason.LENGTH:
            return _FinishReason(finish.reason, length=len(result.token_ids))
        case FinishReason.ABORT:
            return _FinishReason(finish.reason, message="aborted on request")
