"""`BodyReader`: parses bodies, the longer the further from the event loop.

Most bodies are parsed in the loop, long ones in a thread, and the largest in a process.
"""

from typing import Any

from pando_fleet.http.body_process.process import BodyProcess
from pando_fleet.http.off_loop import off_loop
from pando_router.endpoints.endpoint import Endpoint
from pando_router.parsing import large_bodies
from pando_router.parsing.large_bodies import Parse, Rename
from pando_router.requests.request import Request

INLINE_COST = 128 * 1024
"""Of a body that is parsed in the event loop, in 3 ms at most."""

THREAD_BYTES = 2 * 1024 * 1024
THREAD_COMMAS = 16_384
"""Of a body that a thread parses. It holds the interpreter's lock for 3 ms at a time, and its
objects take 1 MiB. More of them would leave the memory of this process full of holes, each with
an object of the event loop."""

_COMMA_COST = 64  # bytes of text that are parsed as fast as a prompt, which a comma may end

SHORT_BYTES = 2 * INLINE_COST // (2 + _COMMA_COST)
"""Of a body that costs no more than INLINE_COST even if every other byte is a comma. So they are
not counted, which would take longer than most of what is done with such a body."""


class BodyReader:
    def __init__(self) -> None:
        self._process = BodyProcess(large_bodies.__name__)

    async def parsed(self, endpoint: Endpoint[Any], body: bytes, content_type: bytes) -> Request:
        """As `Endpoint.parse`; of a large body's prefix only what has keys. Raises ApiError 400,
        and 503 if the process ended that parses large bodies."""
        if len(body) <= SHORT_BYTES:
            return endpoint.parse(body, content_type)
        cost = _cost(body)
        if cost is None:
            question = Parse(endpoint.paths[0], content_type)
            request: Request = (await self._process.ask(question, body))[0]
            return request
        return await off_loop(lambda: endpoint.parse(body, content_type), cost, INLINE_COST)

    async def renamed(
        self, endpoint: Endpoint[Any], body: bytes, content_type: bytes, model: str
    ) -> bytes:
        """As `Endpoint.renamed`. Raises ApiError as `parsed`."""
        cost = _cost(body)
        if cost is None:
            question = Rename(endpoint.paths[0], content_type, model)
            return (await self._process.ask(question, body))[1]
        return await off_loop(
            lambda: endpoint.renamed(body, content_type, model), cost, INLINE_COST
        )

    def close(self) -> None:
        self._process.close()


def _cost(body: bytes) -> int | None:
    """In bytes of a prompt; None for a body that the process parses."""
    if len(body) > THREAD_BYTES:
        return None  # and its commas are not counted: 60 MiB would take 30 ms
    commas = body.count(b",")
    return len(body) + _COMMA_COST * commas if commas <= THREAD_COMMAS else None
