"""The way to replicas: requests go on as they came, answers are opened at their first byte."""

import asyncio
from collections.abc import Coroutine, Set
from typing import Any

from pando_router.current import Current
from pando_router.http.answer import (
    Answer,
    ReplicaFailedError,
    ReplicaLostError,
)
from pando_router.http.headers import Headers, head
from pando_router.http.limits import ReplicaLimits
from pando_router.http.pool import Pool, origin_of
from pando_router.http.replica_connection import Progress
from pando_router.http.sweeper import Sweeper

Asking = Coroutine[Any, Any, Answer]

SWEEP_S = 1.0

# Answers that say: this replica cannot take it, another may.
_ELSEWHERE = frozenset((502, 503))

# Of replicas that are gone; looked for when as many pools are known.
_FORGET_ABOVE = 256


class Upstream:
    """All replicas' connections; made in the event loop, `close` at the end."""

    def __init__(self, limits: Current[ReplicaLimits], *, sweep_s: float = SWEEP_S) -> None:
        """Of connections `limits` bound what is posted."""
        self._limits = limits
        self._full: set[str] = set()
        self._full_under = limits.now
        self._sweeper = Sweeper(sweep_s)
        self._pools: dict[str, Pool] = {}

    def full(self) -> Set[str]:
        """URLs of replicas whose connections were found all in use, under the limits of now."""
        if (limits := self._limits.now) is not self._full_under:
            self._full_under = limits
            self._full.clear()
        return self._full

    async def close(self) -> None:
        """Cuts what is under way."""
        for pool in self._pools.values():
            pool.close()
        self._sweeper.stop()
        await asyncio.sleep(0)  # the transports say goodbye in the loop's next turn

    def abandon(self, url: str, why: str, *, silent_s: float = 0.0) -> int:
        """Fails the requests under way at a replica that is out though its connections stand.

        Those of which nothing has come for `silent_s`, to within a turn of the sweeper, and that
        are no checks. Returns how many.
        """
        pool = self._pools.get(url)
        return 0 if pool is None else pool.abandon(why, silent_s)

    def post(self, url: str, target: bytes, headers: Headers, body: bytes) -> Asking:
        """Sends the request and waits for the first byte of the answer's body.

        `target` is path and query, as they go out. Raises ReplicaFailedError where another replica
        may do better (502 and 503 among its answers), ReplicaSilentError where it has the request
        and may be at work on it, NoConnectionError where it was not asked.
        """
        return self._ask(b"POST", url, target, headers, body, is_a_try=True)

    def request(
        self, method: bytes, url: str, target: bytes, headers: Headers, body: bytes | None = None
    ) -> Asking:
        """As `post` with any method but HEAD and CONNECT, and any answer.

        It finds a connection always: checks have to get through when a replica is busiest.
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
                # The replica closed the idle connection while the request was on its way: it has
                # not begun with it. The other idle ones are as old.
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
        """Raises ReplicaFailedError for what is no URL of a replica."""
        try:
            origin = origin_of(url)
        except ValueError as error:
            raise ReplicaFailedError(f"its URL is {url!r}: {error}") from error
        if len(self._pools) >= _FORGET_ABOVE:
            self._pools = {url: pool for url, pool in self._pools.items() if not pool.is_unused}
        self._pools[url] = pool = Pool(url, origin, self._sweeper, self._limits, self._full)
        return pool
