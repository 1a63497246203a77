"""POST /v1/responses, OpenAI's API, and what it keeps: GET and DELETE /v1/responses/{id}."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pando_fleet.http.off_loop import off_loop
from pando_worker.server.answers.answer import Answer
from pando_worker.server.answers.response_form import ResponseForm
from pando_worker.server.answers.response_objects import (
    ReasoningWanted,
    ResponseObject,
    TextWanted,
)
from pando_worker.server.errors import TOO_LONG, ApiError, bad_request
from pando_worker.server.front.json_bodies import json_route
from pando_worker.server.jobs.chats import ChatJob, make_chat_job
from pando_worker.server.jobs.long_conversations import of_response, refuse_long
from pando_worker.server.kept_responses import KeptResponse
from pando_worker.server.protocol.chats.response_items import Item, with_parts
from pando_worker.server.protocol.chats.responses import ResponsesRequest
from pando_worker.server.protocol.headers.tenant import tenant_of
from pando_worker.server.protocol.resume import tells_tokens
from pando_worker.server.service import Service

MAX_LISTED = 100
_WORDS = (  # of a chat's fields, and of this API's
    (".function.", "."),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("max_completion_tokens", "max_output_tokens"),
    ("messages", "input"),
)


def routes(service: Service) -> APIRouter:
    """Those that make responses."""
    router = APIRouter(route_class=json_route(refuse_long(service, of_response, "input")))

    @router.post("/v1/responses", response_model=None)
    async def responses(body: ResponsesRequest, request: Request) -> Answer:
        tenant = tenant_of(request)
        earlier = _conversation(service, tenant, body.previous_response_id)
        with _in_its_words():
            chat = await _chat_job(service, request, body, earlier)
        begun = begun_response(body, chat.model.name)

        def keep(response: ResponseObject) -> None:
            if body.is_stored:
                service.kept_responses.add(tenant, response, earlier, body.items)

        [parser] = chat.parsers
        form = ResponseForm(
            begun,
            parser,
            service.model.tokenizer.vocabulary,
            keep,
            logprobs=body.logprobs,
            tells_tokens=tells_tokens(request),
        )
        return service.answer(chat.job, form, stream=bool(body.stream))

    return router


def kept_routes(service: Service) -> APIRouter:
    """Those that read and delete them."""
    router = APIRouter()
    responses = service.kept_responses

    def found(request: Request, response_id: str) -> KeptResponse:
        kept = responses.find(tenant_of(request), response_id)
        if kept is None:
            raise _unknown(response_id)
        return kept

    @router.get("/v1/responses/{response_id}")
    async def response(response_id: str, request: Request, stream: bool = False) -> Response:
        if stream:
            raise bad_request("stream: a response that is kept can only be read whole", "stream")
        return _json(found(request, response_id).response)

    @router.delete("/v1/responses/{response_id}")
    async def delete(response_id: str, request: Request) -> dict[str, object]:
        if not responses.remove(tenant_of(request), response_id):
            raise _unknown(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    @router.post("/v1/responses/{response_id}/cancel")
    async def cancel(response_id: str, request: Request) -> None:
        found(request, response_id)
        raise bad_request("only a response in the background can be cancelled", "response_id")

    @router.get("/v1/responses/{response_id}/input_items")
    async def input_items(
        response_id: str,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
    ) -> Response:
        kept = found(request, response_id)
        return _json(_listed(response_id, (*kept.earlier, *kept.input), limit, order, after))

    return router


def _conversation(service: Service, tenant: str, previous: str | None) -> tuple[bytes, ...]:
    """What came before the request's input. Raises ApiError 400 if it is not kept here."""
    if previous is None:
        return ()
    kept = service.kept_responses.find(tenant, previous)
    if kept is None:
        raise bad_request(
            f"previous response {previous[:100]!r} is not kept here: it was made with store: false,"
            " is too old, or its worker has ended",
            "previous_response_id",
            "previous_response_not_found",
        )
    return kept.conversation


async def _chat_job(
    service: Service, request: Request, body: ResponsesRequest, earlier: tuple[bytes, ...]
) -> ChatJob:
    """With `truncation: auto`, of as many last turns as fit.

    Raises ApiError, as `make_chat_job`.
    """
    num_bytes = len(await request.body()) + sum(map(len, earlier))

    async def job_without(dropped: int) -> ChatJob:
        conversation = await off_loop(
            lambda: body.as_chat(_items(earlier), dropped=dropped), num_bytes
        )
        return await make_chat_job(service, request, conversation)

    try:
        return await job_without(0)
    except ApiError as error:
        if body.truncation != "auto" or error.code != TOO_LONG:
            raise
        problem = error
    turns = await off_loop(lambda: body.turns(_items(earlier)), num_bytes)
    starts = [start for start in turns if start > 0]
    found: ChatJob | None = None
    low, high = 0, len(starts)  # the first start that fits lies between
    while low < high:
        middle = (low + high) // 2
        try:
            found, high = await job_without(starts[middle]), middle
        except ApiError as error:
            if error.code != TOO_LONG:
                raise
            problem, low = error, middle + 1
    if found is None:
        raise problem
    return found


def _items(kept: Iterable[bytes]) -> list[Item]:
    return [msgspec.json.decode(item) for item in kept]


@contextmanager
def _in_its_words() -> Iterator[None]:
    """Errors of a chat name the fields of this API."""
    try:
        yield
    except ApiError as error:
        old = error.param or ""
        new = next((old.replace(*words) for words in _WORDS if words[0] in old), old)
        if old and error.message.startswith(old):
            error.message = new + error.message.removeprefix(old)
        error.param = new or None
        raise


def begun_response(body: ResponsesRequest, model: str) -> ResponseObject:
    """As it is before its first token."""
    return ResponseObject(
        # A request id would be the client's own choice.
        id=body.resume_response_id or f"resp_{secrets.token_hex(24)}",
        created_at=int(time.time()),
        status="in_progress",
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        model=model,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning=ReasoningWanted(body.effort),
        store=body.is_stored,
        temperature=body.temperature,
        text=TextWanted(body.format),
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_logprobs=body.top_logprobs or 0,
        truncation=body.truncation or "disabled",
        top_p=body.top_p,
        user=body.user,
    )


class _ItemList(msgspec.Struct, frozen=True):
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


def _listed(
    response_id: str, kept: Sequence[bytes], limit: int, order: str, after: str | None
) -> bytes:
    """Items without an id get one from their place."""
    name = response_id.partition("_")[2]
    items = [{"id": f"item_{name}_{i}", **with_parts(item)} for i, item in enumerate(_items(kept))]
    if order == "desc":
        items.reverse()
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise bad_request(f"after: there is no item {after[:100]!r}", "after")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return msgspec.json.encode(_ItemList(page, first, last, has_more=len(items) > limit))


def _unknown(response_id: str) -> ApiError:
    return ApiError(
        404,
        f"response {response_id[:100]!r} is not kept here",
        param="response_id",
        code="response_not_found",
    )


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
