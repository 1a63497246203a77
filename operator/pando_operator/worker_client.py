"""Calls to workers: load an adapter, unload one. Each has a time limit."""

import json
import re
from dataclasses import dataclass
from typing import Any

import aiohttp

from pando_fleet.registry.adapter import IDENTITY_HEADER

CONNECT_S = 5.0
MOST_CONNECTIONS = 256
_ANSWER_BYTES = 65_536
_ERROR_CHARS = 400
_IDENTITY = re.compile(r"[0-9a-f]{32}")


class WorkerError(Exception):
    """The worker refused a call or did not answer, in words for the pool's status."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    identity: str  # of loaded weights
    text: bytes

    @property
    def refusal(self) -> str:
        """The message of its error, else its status in words."""
        return _message(self.text) or f"it answered with status {self.status}"


class WorkerClient:
    """Connections to all workers; `close` it at the end."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def load(
        self, url: str, name: str, source: str, *, pin: bool, limit_s: float, token: str = ""
    ) -> str:
        """Load an adapter, or replace the one of this name; returns the identity of its weights.
        `token` is the worker's admin token, empty if it has none.

        Raises WorkerError.
        """
        body = {"lora_name": name, "lora_path": source, "load_inplace": True, "pin": pin}
        answer = await self._post(f"{url}/v1/load_lora_adapter", body, limit_s, token)
        if answer.status != 200:
            raise WorkerError(answer.refusal)
        if not _IDENTITY.fullmatch(answer.identity):
            raise WorkerError("it loaded the adapter, but did not answer with its identity")
        return answer.identity

    async def unload(self, url: str, name: str, *, limit_s: float, token: str = "") -> None:
        """Unload an adapter after its requests; one that is not there is no failure.

        Raises WorkerError.
        """
        body = {"lora_name": name}
        answer = await self._post(f"{url}/v1/unload_lora_adapter", body, limit_s, token)
        if answer.status not in (200, 404):
            raise WorkerError(answer.refusal)

    async def _post(self, url: str, body: dict[str, Any], limit_s: float, token: str) -> _Answer:
        if self._session is None:
            # Calls are rare: a kept connection would mostly be one that the worker has closed.
            connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector)
        limits = aiohttp.ClientTimeout(total=limit_s, sock_connect=CONNECT_S)
        headers = {"authorization": f"Bearer {token}"} if token else None
        try:
            async with self._session.post(
                url, json=body, headers=headers, timeout=limits, allow_redirects=False
            ) as answer:
                text = await answer.content.read(_ANSWER_BYTES)
                return _Answer(answer.status, answer.headers.get(IDENTITY_HEADER, ""), text)
        except aiohttp.ConnectionTimeoutError:
            raise WorkerError(f"it cannot be reached within {CONNECT_S:g} s") from None
        except TimeoutError:
            raise WorkerError(f"it did not answer within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise WorkerError(f"it cannot be reached: {type(error).__name__}") from None


def _message(text: bytes) -> str:
    """The message of an error in OpenAI's form; "" if there is none."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        return ""
    words = " ".join(str(message).split())
    return words if len(words) <= _ERROR_CHARS else f"{words[: _ERROR_CHARS - 1]}…"
