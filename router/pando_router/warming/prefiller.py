"""Sends a prefix to a replica, which computes and caches it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

from pando_fleet.http.server.headers import Headers
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_router.http.answer import (
    Answer,
    NoConnectionError,
    ReplicaFailedError,
    ReplicaSilentError,
)
from pando_router.http.upstream import Upstream
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.salting import Salting
from pando_router.warming.prefixes import HotPrefix
from pando_router.warming.replay import prefill

TIMEOUT_S = 20.0  # less than a claim lasts without a report
MAX_ANSWER_BYTES = 1 << 20  # an answer of one token is shorter; the rest is not read
MAX_FAILURES = 3  # prefills for one mark; one may fail by its prompt, more by the replica


class PrefillError(Exception):
    """The replica did not compute the prefix; the message says why."""


Prefill = Callable[[str, HotPrefix, float], Awaitable[int]]
"""Takes a replica's URL, a prefix and bytes per token; returns the prompt tokens computed.
Raises PrefillError."""


@dataclass(frozen=True, slots=True)
class Prefiller:
    """Implements `Prefill` over HTTP."""

    upstream: Upstream
    forwarding: Forwarding
    salting: Salting

    async def __call__(self, url: str, hot: HotPrefix, bytes_per_token: float) -> int:
        """Prompt tokens that the replica computed: as it reported them, otherwise estimated.

        Raises PrefillError.
        """
        chunks = len(hot.keys) // KEY_BYTES
        source = hot.source
        json = [(b"content-type", b"application/json")]
        headers = self.forwarding(json, f"prefill-{uuid4().hex}", source.tenant, url)

        def body(chunks: int) -> bytes:
            return self.salting(prefill(source, chunks), source.path, source.tenant, url)

        try:
            async with asyncio.timeout(TIMEOUT_S):
                target = source.path.encode()
                answer = await self._post(url, target, headers, body(chunks))
                if 400 <= answer.status < 500:  # perhaps due to the cut, as by a template
                    answer.close()
                    answer = await self._post(url, target, headers, body(1 << 30))
                await answer.whole(MAX_ANSWER_BYTES)
                if answer.status != 200:
                    raise PrefillError(f"the replica answered {answer.status}")
        except TimeoutError:
            raise PrefillError(f"no complete answer within {TIMEOUT_S:g} s") from None
        except (NoConnectionError, ReplicaFailedError, ReplicaSilentError) as error:
            raise PrefillError(str(error)) from error
        prompt = answer.count(b"x-pando-prompt-tokens")
        cached = answer.count(b"x-pando-cached-tokens")
        if prompt is None or cached is None:
            return int(len(hot.own_keys) // KEY_BYTES * CHUNK_BYTES / bytes_per_token)
        return max(0, prompt - cached)

    async def _post(self, url: str, target: bytes, headers: Headers, body: bytes) -> Answer:
        return await self.upstream.post(url, target, headers, body)
