"""POST /v1/chat/completions."""

import time

from fastapi import APIRouter, Request

from pando_worker.messages import LogprobsWanted
from pando_worker.server.answer import Answer
from pando_worker.server.chat_form import ChatForm
from pando_worker.server.jobs import Asked, make_job
from pando_worker.server.protocol.chat import ChatRequest
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Answer:
        service.model.check_name(body.model)
        asked = Asked(
            prompts=[await service.encode_chat(body)],
            prompt_param="messages",
            max_tokens=body.max_completion_tokens or body.max_tokens,
            min_tokens=body.min_tokens or 0,
            samples=body.n or 1,
            keep_last=body.truncate_prompt_tokens,
            seed=body.seed,
            priority=body.priority or 0,
            logprobs=LogprobsWanted(top=body.top_logprobs or 0) if body.logprobs else None,
        )
        job = make_job(service, request, body, asked)
        form = ChatForm(
            id=f"chatcmpl-{request.state.request_id}",
            model=service.model.name,
            created=int(time.time()),
            include_usage=body.include_usage,
            vocabulary=service.model.tokenizer.vocabulary,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        )
        return service.answer(job, form, stream=body.stream)

    return router
