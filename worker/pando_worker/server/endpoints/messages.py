"""POST /v1/messages and /v1/messages/count_tokens, Anthropic's API."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from pando_fleet.http.off_loop import off_loop
from pando_worker.server.answers.answer import Answer
from pando_worker.server.answers.message_form import MessageForm
from pando_worker.server.errors import ANTHROPIC_PATH
from pando_worker.server.front.json_bodies import json_route
from pando_worker.server.jobs.chats import make_chat_job
from pando_worker.server.jobs.long_conversations import of_messages, refuse_long
from pando_worker.server.jobs.prompts import room_for
from pando_worker.server.protocol.chats.anthropic import CountTokensRequest, MessagesRequest
from pando_worker.server.protocol.chats.chat import ChatRequest
from pando_worker.server.protocol.resume import tells_tokens
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=json_route(refuse_long(service, of_messages, "messages")))

    @router.post(ANTHROPIC_PATH, response_model=None)
    async def messages(body: MessagesRequest, request: Request) -> Answer:
        chat = await make_chat_job(service, request, await _as_chat(body, request))
        [parser] = chat.parsers
        form = MessageForm(
            request_id=request.state.request_id,
            model=chat.model.name,
            parser=parser,
            tells_tokens=tells_tokens(request),
        )
        return service.answer(chat.job, form, stream=body.stream)

    @router.post(f"{ANTHROPIC_PATH}/count_tokens", response_model=None)
    async def count_tokens(body: CountTokensRequest, request: Request) -> JSONResponse:
        chat = await _as_chat(body, request)
        service.asked_model(chat.model)
        room = room_for(service, "messages", keep_last=None, output=0)
        prompt = await service.encode_chat(chat, room)
        return JSONResponse({"input_tokens": len(prompt.token_ids)})

    return router


async def _as_chat(body: CountTokensRequest, request: Request) -> ChatRequest:
    return await off_loop(body.as_chat, len(await request.body()))
