"""POST /tokenize and /detokenize in vLLM's format."""

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from pando_worker.parsers.tools import read_tool_use
from pando_worker.server.errors import bad_request
from pando_worker.server.front.json_bodies import json_route
from pando_worker.server.jobs.long_conversations import of_chat, refuse_long
from pando_worker.server.protocol.chats.chat import template_arguments, text_of
from pando_worker.server.protocol.control import DetokenizeRequest, TokenizeRequest
from pando_worker.server.service import Service
from pando_worker.server.text.long_texts import Room

_CONTEXTS = 8  # more ids, or a text of more than twice as many, would delay other requests


class _Tokenized(msgspec.Struct, frozen=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class _Detokenized(msgspec.Struct, frozen=True):
    prompt: str


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=json_route(refuse_long(service, of_chat, "messages")))
    tokenizer = service.model.tokenizer

    @router.post("/tokenize", response_model=None)
    async def tokenize(body: TokenizeRequest) -> Response:
        service.asked_model(body.model)
        tokens = await _encode(body)
        strings = tokenizer.tokens(tokens) if body.return_token_strs else None
        return _json(_Tokenized(len(tokens), service.context_length, tokens, strings))

    @router.post("/detokenize", response_model=None)
    async def detokenize(body: DetokenizeRequest) -> Response:
        service.asked_model(body.model)
        if len(body.tokens) > (most := _CONTEXTS * service.context_length):
            raise bad_request(
                f"tokens has {len(body.tokens)} ids: at most {most} are decoded at once", "tokens"
            )
        if body.tokens and max(body.tokens) >= service.model.vocab_size:
            raise bad_request(
                f"token id {max(body.tokens)} must be below the vocabulary's size"
                f" {service.model.vocab_size}",
                "tokens",
            )
        return _json(_Detokenized(await tokenizer.decode_all(body.tokens)))

    async def _encode(body: TokenizeRequest) -> list[int]:
        if body.prompt is not None:
            room = Room(_CONTEXTS * service.context_length, None, "prompt")
            prompt = await tokenizer.encode(
                body.prompt, room, add_special_tokens=body.add_special_tokens
            )
            return prompt.token_ids
        room = Room(_CONTEXTS * service.context_length, None, "messages")
        read_tool_use(body.tools)  # checks them
        messages = list(body.messages or ())
        continued = messages.pop() if body.continue_final_message else None
        chat = await service.encode_messages(
            messages,
            room,
            tools=body.tools,
            # A continued message follows the generation prompt, as in a chat.
            add_generation_prompt=continued is not None or body.add_generation_prompt is not False,
            answer=text_of(continued) if continued else "",
            template_kwargs=template_arguments(body.chat_template_kwargs, body.reasoning_effort),
        )
        return chat.token_ids

    return router


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
