"""Request bodies as JSON: read and validated without holding the event loop.

No stream gets a token while a body is read in the event loop. Python's own reader takes some 2 ms
for each MiB of base64, this one a twentieth of that.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.types import Receive, Scope

from pando_fleet.http.off_loop import off_loop
from pando_worker.server.errors import ApiError
from pando_worker.server.front.json_pieces import has_many_values, read_in_pieces, read_long
from pando_worker.server.front.long_texts import LONG_BODY

_BODY = ("body",)  # FastAPI's place of the whole body

UNREADABLE = "There was an error parsing the body"
"""FastAPI's message for a body that its JSON parser fails on."""

Validate = Callable[[Any], tuple[Any, list[Any]]]


class JsonRoute(APIRoute):
    """A route of FastAPI whose body is read by `read_json`, and validated beside it."""

    def refuse(self, data: bytes) -> None:
        """Called before a body is read. Raises ApiError if it need not be."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        field = self.body_field

        def validate(value: Any) -> tuple[Any, list[Any]]:
            return field.validate(value, loc=_BODY) if field else (value, [])

        async def with_body(request: Request) -> Response:
            try:
                return await handle(
                    _JsonRequest(request.scope, request.receive, self.refuse, validate)
                )
            except _RefusedError as refused:
                raise refused.taken() from None

        return with_body


def json_route(refuse: Callable[[bytes], None]) -> type[JsonRoute]:
    """A route that calls `refuse` before it reads a body."""

    class _Route(JsonRoute):
        def refuse(self, data: bytes) -> None:
            refuse(data)

    return _Route


class _JsonRequest(Request):
    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        refuse: Callable[[bytes], None],
        validate: Validate,
    ) -> None:
        super().__init__(scope, receive)
        self._refuse = refuse
        self._validate = validate

    async def json(self) -> Any:
        """The body's model, which FastAPI's own validation returns as it is."""
        data = await self.body()
        return await off_loop(lambda: self._read(data), len(data))

    def _read(self, data: bytes) -> Any:
        try:
            self._refuse(data)
        except ApiError as error:
            raise _RefusedError(error) from None
        try:
            value = read_json(data)
        except json.JSONDecodeError as error:
            raise _RefusedError(_no_json(error)) from None
        except (ValueError, RecursionError):
            raise _RefusedError(HTTPException(400, UNREADABLE)) from None
        try:
            model, errors = self._validate(value)
        except (ApiError, RecursionError) as error:
            raise _RefusedError(error) from None
        if errors:
            raise _RefusedError(RequestValidationError(errors))
        return model


class _RefusedError(HTTPException):
    """The only exception that FastAPI passes on while it reads a body. It makes errors of the
    others, in frames to which these then refer."""

    def __init__(self, error: Exception) -> None:
        super().__init__(400)
        self.args = (error,)

    def taken(self) -> Exception:
        """Why. As that error will refer to this one, this one must not refer to it: with all that
        their tracebacks hold they would wait for a full garbage collection."""
        error: Exception = self.args[0]
        self.args = ()
        return error


def _no_json(error: json.JSONDecodeError) -> RequestValidationError:
    """As FastAPI's own, without the text."""
    ctx = {"error": error.msg}
    place = (*_BODY, error.pos)
    return RequestValidationError(
        [{"type": "json_invalid", "loc": place, "msg": "JSON decode error", "ctx": ctx}]
    )


def read_json(data: bytes) -> Any:
    """As `json.loads`, whose errors it raises."""
    if len(data) > LONG_BODY:
        return read_long(data)
    if has_many_values(data):
        return read_in_pieces(data)
    try:
        return from_json(data, cache_strings="keys")
    except ValueError:  # or what only Python's reader reads: UTF-16, or half a surrogate pair
        return json.loads(data)
