"""POST /v1/chat/completions."""

import time

from fastapi import APIRouter, Request

from pando_worker.server.answers.answer import Answer
from pando_worker.server.answers.chat_form import ChatForm
from pando_worker.server.front.json_bodies import json_route
from pando_worker.server.jobs.chats import make_chat_job
from pando_worker.server.jobs.long_conversations import of_chat, refuse_long
from pando_worker.server.protocol.chats.chat import ChatRequest
from pando_worker.server.protocol.resume import tells_tokens
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=json_route(refuse_long(service, of_chat, "messages")))

    @router.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Answer:
        chat = await make_chat_job(service, request, body)
        tool_use = chat.reading.tool_use
        form = ChatForm(
            id=f"chatcmpl-{request.state.request_id}",
            model=chat.model.name,
            created=int(time.time()),
            include_usage=body.include_usage,
            vocabulary=service.model.tokenizer.vocabulary,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            parsers=chat.parsers,
            calls_finish=tool_use is None or not tool_use.named,
            tells_tokens=tells_tokens(request),
            image_tokens=chat.prompt.image_tokens,
            video_tokens=chat.prompt.video_tokens,
        )
        return service.answer(chat.job, form, stream=body.stream)

    return router
