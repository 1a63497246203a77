"""Sends requests to replicas, and returns each answer at its first byte."""

import asyncio
from collections.abc import Coroutine, Set
from typing import Any

from pando_fleet.current import Current
from pando_fleet.http.server.headers import Headers, head
from pando_fleet.http.server.sweeper import Sweeper
from pando_router.http.answer import (
    Answer,
    ReplicaFailedError,
    ReplicaLostError,
)
from pando_router.http.limits import ReplicaLimits
from pando_router.http.pool import Pool, origin_of
from pando_router.http.replica_connection import Progress

Asking = Coroutine[Any, Any, Answer]

SWEEP_S = 1.0

# Statuses by which a replica refuses a request that another may take.
_ELSEWHERE = frozenset((502, 503))

# At this many pools, those without connections are dropped.
_FORGET_ABOVE = 256


class Upstream:
    """The connections to all replicas; created in the event loop, `close` at the end."""

    def __init__(self, limits: Current[ReplicaLimits], *, sweep_s: float = SWEEP_S) -> None:
        """`limits.max_connections` applies to `post` only."""
        self._limits = limits
        self._full: set[str] = set()
        self._full_under = limits.now
        self._sweeper = Sweeper(sweep_s)
        self._pools: dict[str, Pool] = {}

    def full(self) -> Set[str]:
        """The URLs of replicas whose connections were all in use under the current limits."""
        if (limits := self._limits.now) is not self._full_under:
            self._full_under = limits
            self._full.clear()
        return self._full

    async def close(self) -> None:
        """Cuts all connections."""
        for pool in self._pools.values():
            pool.close()
        self._sweeper.stop()
        await asyncio.sleep(0)  # the transports close in the loop's next turn

    def abandon(self, url: str, why: str, *, silent_s: float = 0.0) -> int:
        """Fails the requests of a replica that is lost although its connections are open.

        Spares health checks and requests whose answer sent bytes within `silent_s` seconds (precise
        to a turn of the sweeper). Returns how many failed.
        """
        pool = self._pools.get(url)
        return 0 if pool is None else pool.abandon(why, silent_s)

    def post(self, url: str, target: bytes, headers: Headers, body: bytes) -> Asking:
        """Sends the request and waits for the first byte of the answer's body.

        `target` is path and query, sent as given. Raises ReplicaFailedError if another replica may
        succeed (also for answers 502 and 503), ReplicaSilentError if the replica has the request
        and may be computing, NoConnectionError if it never received the request.
        """
        return self._ask(b"POST", url, target, headers, body, is_a_try=True)

    def request(
        self, method: bytes, url: str, target: bytes, headers: Headers, body: bytes | None = None
    ) -> Asking:
        """Like `post`, with any method but HEAD and CONNECT, and any answer.

        Ignores the limit of connections, because checks must get through to a busy replica.
        """
        return self._ask(method, url, target, headers, body, is_a_try=False)

    async def _ask(
        self,
        method: bytes,
        url: str,
        target: bytes,
        headers: Headers,
        body: bytes | None,
        *,
        is_a_try: bool,
    ) -> Answer:
        pool = self._pools.get(url) or self._pool(url)
        origin = pool.origin
        first = b"%b %b%b HTTP/1.1\r\nhost: %b" % (
            method,
            origin.path,
            target,
            origin.authority,
        )
        if body is not None:
            first += b"\r\ncontent-length: %d" % len(body)
        request_head = head(first, headers)
        connection = pool.take()
        is_reused = connection is not None
        while True:
            if connection is None:
                connection = await pool.connect(bounded=is_a_try)
            answer = connection.send(request_head, body or b"")
            connection.is_check = not is_a_try
            try:
                await answer.open()
            except ReplicaLostError:
                raise
            except ReplicaFailedError:
                if not (is_reused and connection.progress is Progress.NOTHING):
                    raise
                # The replica closed the idle connection as the request was sent, and did not begin
                # with it. The other idle ones are as old.
                connection, is_reused = None, False
                pool.drop_idle()
            except BaseException:
                answer.close()
                raise
            else:
                if is_a_try and answer.status in _ELSEWHERE:
                    answer.close()
                    raise ReplicaFailedError(f"answered {answer.status}", answer.status)
                return answer

    def _pool(self, url: str) -> Pool:
        """The pool for `url`. Raises ReplicaFailedError if the URL is not valid."""
        try:
            origin = origin_of(url)
        except ValueError as error:
            raise ReplicaFailedError(f"its URL is {url!r}: {error}") from error
        if len(self._pools) >= _FORGET_ABOVE:
            self._pools = {url: pool for url, pool in self._pools.items() if not pool.is_unused}
        self._pools[url] = pool = Pool(url, origin, self._sweeper, self._limits, self._full)
        return pool
