"""A router's `/recording`: the switch, the list of files, and their contents."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from pando.redact import redact

SILENCE_S = 30.0  # in which a router must send something
PIECE = 256 * 1024  # bytes


class RouterError(Exception):
    """A router cannot be asked; the message is one line and names it."""


class RecordingFile(msgspec.Struct, frozen=True):
    """A file, as `/recording` lists it."""

    file: str
    router: str
    secret: str
    started: float
    changed: float
    size: int


class RecordingState(msgspec.Struct, frozen=True):
    on: bool
    changed: bool | None
    files: tuple[RecordingFile, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    file: RecordingFile
    path: Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a router is, and what its way demands."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ssl: SSLContext | bool = True

    @classmethod
    def of_url(cls, url: str) -> "Place":
        return cls(redact(url.rstrip("/")), url.rstrip("/"))


class RouterRecording:
    """One router. Every method raises RouterError."""

    def __init__(self, place: Place, key: str | None) -> None:
        self.name = place.name
        self._url = place.url
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=SILENCE_S)
        self._http = aiohttp.ClientSession(
            timeout=timeout,
            headers={**place.headers, **({"x-api-key": key} if key else {})},
            connector=aiohttp.TCPConnector(ssl=place.ssl),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._http.close()

    async def state(self) -> RecordingState:
        async with self._asked("GET", "/recording") as answer:
            return self._read(await answer.read())

    async def switch(self, on: bool) -> RecordingState:
        """Of all routers of its Redis."""
        async with self._asked("PATCH", "/recording", msgspec.json.encode({"on": on})) as answer:
            return self._read(await answer.read())

    async def fetch(self, file: RecordingFile, path: Path, progress: Callable[[int], None]) -> None:
        """Writes the file to `path`, readable only by its owner. Raises OSError, too."""
        async with self._asked("GET", f"/recording/files/{file.file}") as answer:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as written:
                async for piece in answer.content.iter_chunked(PIECE):
                    written.write(piece)
                    progress(len(piece))

    def _read(self, body: bytes) -> RecordingState:
        try:
            return msgspec.json.decode(body, type=RecordingState)
        except (msgspec.DecodeError, UnicodeError):
            raise RouterError(
                f"{self.name} is no router of this release: it answers /recording otherwise"
            ) from None

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._http.request(method, self._url + path, data=body) as answer:
                if answer.status >= 400:
                    raise RouterError(_refusal(self.name, answer.status, await answer.read()))
                yield answer
        except TimeoutError:
            raise RouterError(f"{self.name} does not answer") from None
        except aiohttp.ClientError as error:
            why = redact(" ".join(str(error).split())) or type(error).__name__
            raise RouterError(f"{self.name} cannot be reached: {why}") from None


def _refusal(name: str, status: int, body: bytes) -> str:
    if status == 401:
        return f"{name} wants the API key of an admin: set OPENAI_API_KEY"
    try:
        answer = msgspec.json.decode(body)
        # Of a router, or of an API server that does not pass the request on.
        message = str(answer["error"]["message"] if "error" in answer else answer["message"])
    except (msgspec.DecodeError, UnicodeError, LookupError, TypeError):
        message = "it is no router of Pando, or of an earlier release" if status == 404 else ""
    return f"{name} answers {status}" + (f": {' '.join(message.split())[:300]}" if message else "")
