"""The way to replicas: requests go on as they came, answers are opened at their first byte."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import aiohttp
from yarl import URL

Headers = list[tuple[bytes, bytes]]

# Below uvicorn's 5 s, so that a replica does not close a connection just as a request goes into it.
KEEP_ALIVE_S = 4.0

# Meant for one connection, not for the next (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
# Made anew for each replica, or already dealt with here.
_OWN = frozenset((b"host", b"content-length", b"expect", b"x-request-id"))

# Added to every answer.
_ADDED = frozenset((b"x-request-id", b"x-pando-replica", b"x-pando-matched-tokens"))

# Answers that say: this replica cannot take it, another may.
_ELSEWHERE = frozenset((502, 503))


class ReplicaFailedError(Exception):
    """The replica did not answer, or could not take the request; the message says which."""


class ReplicaSilentError(Exception):
    """The replica took the request and sent nothing for longer than read_timeout."""


@dataclass(slots=True)
class Answer:
    """An answer with its first byte, the rest to be `read`. To be closed, whatever happens."""

    response: aiohttp.ClientResponse
    first_chunk: bytes

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def is_event_stream(self) -> bool:
        """Whether an event can be appended to the body."""
        headers = self.response.headers
        return headers.get("content-type", "").startswith("text/event-stream") and (
            headers.get("content-encoding", "identity") == "identity"
        )

    def headers(self) -> Headers:
        """End-to-end headers as they came, without those that the router adds itself."""
        lowered = ((name.lower(), value) for name, value in self.response.raw_headers)
        return [header for header in _end_to_end(lowered) if header[0] not in _ADDED]

    def count(self, header: str) -> int | None:
        """A header that holds a number; None where it is missing or holds something else."""
        value = self.response.headers.get(header, "")
        return int(value) if value.isascii() and value.isdigit() else None

    @property
    def complete(self) -> bool:
        """Whether the whole body was read."""
        return self.response.content.at_eof()

    async def read(self) -> bytes:
        """The next bytes as they arrive, empty at the end. Raises ReplicaFailedError."""
        try:
            return await self.response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise ReplicaFailedError(_reason(error)) from error

    def close(self) -> None:
        """Ends the request: a replica that is not done sees its connection close."""
        self.response.close()


class Upstream:
    """All replicas' connections; `open` in the event loop, `close` at the end."""

    def __init__(self, max_connections: int, connect_timeout: float, read_timeout: float) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=max_connections, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=10
            ),
            timeout=aiohttp.ClientTimeout(sock_connect=connect_timeout, sock_read=read_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
        )

    async def close(self) -> None:
        await self._session.close()

    async def post(self, url: str, path_and_query: str, headers: Headers, body: bytes) -> Answer:
        """Sends the request and waits for the first byte of the answer's body.

        Raises ReplicaFailedError where another replica may do better, ReplicaSilentError.
        """
        response = None
        try:
            destination = _url(url, path_and_query)
        except ValueError as error:
            raise ReplicaFailedError(f"its URL is {url!r}: {error}") from error
        try:
            response = await self._session.post(
                destination,
                data=body,
                headers=[
                    (name.decode(), value.decode(errors="replace")) for name, value in headers
                ],
                allow_redirects=False,
            )
            if response.status in _ELSEWHERE:
                raise ReplicaFailedError(f"answered {response.status}")
            return Answer(response, await response.content.readany())
        except BaseException as error:
            if response is not None:
                response.close()
            if isinstance(error, aiohttp.SocketTimeoutError):
                raise ReplicaSilentError(_reason(error)) from error
            if isinstance(error, (aiohttp.ClientError, OSError)):
                raise ReplicaFailedError(_reason(error)) from error
            raise


@lru_cache(maxsize=1024)
def _url(base: str, path_and_query: str) -> URL:
    return URL(base.rstrip("/") + path_and_query, encoded=True)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def forwarded(headers: Iterable[tuple[bytes, bytes]], request_id: str) -> Headers:
    """A client's headers as the replica gets them."""
    kept = [(name, value) for name, value in _end_to_end(headers) if name not in _OWN]
    kept.append((b"x-request-id", request_id.encode()))
    return kept


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Without the hop-by-hop ones, nor those that `connection` names; names are lower case."""
    all_headers = list(headers)
    named: set[bytes] = set()
    for name, value in all_headers:
        if name == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    return [
        (name, value)
        for name, value in all_headers
        if name not in _HOP_BY_HOP and name not in named
    ]
