"""Calls to workers: load an adapter, unload one. Each has a time limit."""

import json
import re
from typing import Any

import aiohttp

CONNECT_S = 5.0
LOAD_S = 600.0
"""A worker may fetch the adapter from a hub."""

UNLOAD_S = 180.0
"""A worker waits for the adapter's requests."""

MOST_CONNECTIONS = 64
_ANSWER_BYTES = 65_536
_ERROR_CHARS = 400
_IDENTITY = re.compile(r"[0-9a-f]{32}")


class WorkerError(Exception):
    """The worker refused a call or did not answer, in words for the pool's status."""


class WorkerClient:
    """A connection pool to all workers; `close` it at the end."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def load(self, url: str, name: str, source: str, *, pin: bool) -> str:
        """Load an adapter, or replace the one of this name; returns the identity of its weights.

        Raises WorkerError.
        """
        body = {"lora_name": name, "lora_path": source, "load_inplace": True, "pin": pin}
        status, answer = await self._post(f"{url}/v1/load_lora_adapter", body, LOAD_S)
        if status != 200:
            raise WorkerError(_message(answer) or f"it answered with status {status}")
        identity = answer.get("identity")
        if not isinstance(identity, str) or not _IDENTITY.fullmatch(identity):
            raise WorkerError("it loaded the adapter, but did not answer with its identity")
        return identity

    async def unload(self, url: str, name: str) -> None:
        """Unload an adapter after its requests; one that is not there is no failure.

        Raises WorkerError.
        """
        url = f"{url}/v1/unload_lora_adapter"
        status, answer = await self._post(url, {"lora_name": name}, UNLOAD_S)
        if status not in (200, 404):
            raise WorkerError(_message(answer) or f"it answered with status {status}")

    async def _post(self, url: str, body: dict[str, Any], limit_s: float) -> tuple[int, Any]:
        """Status and JSON object of the answer; an empty one if it has none."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector)
        limits = aiohttp.ClientTimeout(total=limit_s, sock_connect=CONNECT_S)
        try:
            async with self._session.post(
                url, json=body, timeout=limits, allow_redirects=False
            ) as answer:
                return answer.status, _object(await answer.content.read(_ANSWER_BYTES))
        except aiohttp.ConnectionTimeoutError:
            raise WorkerError(f"it cannot be reached within {CONNECT_S:g} s") from None
        except TimeoutError:
            raise WorkerError(f"it did not answer within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise WorkerError(f"it cannot be reached: {type(error).__name__}") from None


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _message(answer: dict[str, Any]) -> str:
    """The message of a worker's error; "" if the answer is none."""
    error = answer.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    text = " ".join(message.split()) if isinstance(message, str) else ""
    return text if len(text) <= _ERROR_CHARS else f"{text[: _ERROR_CHARS - 1]}…"
