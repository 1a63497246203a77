"""Calls to Redis from a hot path: sent in the same turn of the event loop, repeated at most once.

A call is repeated once if its connection broke, if the server is no longer a master, or if a
cluster has moved its slot, so commands must be idempotent. A slow server is not asked twice. ASK,
for a slot that is being moved, counts as Redis being away.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from pando_fleet.redis.client import FleetError, FleetUnavailable, RedisClient, refusal
from pando_fleet.redis.refusals import NEEDS_CLUSTER_URL, OTHER_NODE, WRONG_SERVER, refusal_word
from pando_fleet.redis.wire.call import Answer, Call, Reply, pack
from pando_fleet.redis.wire.connection import Connection, Refused, open_connection
from pando_fleet.redis.wire.directory import Address, directory_of

MAX_CALLS = 4096
"""Limit of calls in progress; a Redis that is so far behind is useless to a request."""


class Wire:
    """One connection per server, shared by all callers in one event loop.

    Address, credentials and TLS settings are those of `redis`, which finds masters and cluster
    nodes and is not used otherwise.
    """

    def __init__(self, redis: RedisClient) -> None:
        self._directory = directory_of(redis)
        self._connections: dict[Address, Connection] = {}
        # Calls that wait for a connection, by server; None if the server is unknown. Each server
        # has its own queue, so that one that is down delays no call to another.
        self._waiting: dict[Address | None, deque[Call]] = {}
        self._connecting: dict[Address | None, asyncio.Task[None]] = {}
        self._stale: set[Address] = set()  # servers whose keys must be looked up again
        self._under_way = 0  # calls without an answer, including waiting ones
        self._closed = False

    async def call(self, key: str, *args: str | bytes | int | float) -> Any:
        """Runs a command on the server of `key`. Raises FleetUnavailable, FleetError."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.send(key, pack(*args), answer_to(reply))
        return await reply

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        """Sends without waiting; `answer` gets the reply or a FleetError, never during this call.

        `script` is a packed SCRIPT LOAD for a server that does not know the script yet.
        Raises FleetError if too many calls are in progress.
        """
        if self._closed:
            raise FleetUnavailable("the connection to Redis is closed")
        if self._under_way >= MAX_CALLS:  # not Redis's fault
            raise FleetError(f"{MAX_CALLS} calls to Redis are in progress")
        self._under_way += 1
        self._send(Call(key, packed, answer, script))

    def flush(self) -> None:
        """Writes what this turn of the loop has gathered, for a caller that knows it is
        complete."""
        for connection in self._connections.values():
            connection.flush()

    async def aclose(self) -> None:
        """Closes all connections; calls in progress fail."""
        self._closed = True
        connecting = tuple(self._connecting.values())
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)
        for connection in tuple(self._connections.values()):
            connection.close()
            await connection.closed

    def _send(self, call: Call) -> None:
        address = self._directory.lookup(call.key)
        if address in self._stale:
            address = None
        connection = self._connections.get(address) if address is not None else None
        if connection is None or not connection.is_open or address in self._waiting:
            self._wait(address, call)
        elif connection.is_full:
            error = FleetUnavailable("Redis does not read what was sent to it")
            asyncio.get_running_loop().call_soon(self._finish, call, error)
        else:
            _send_on(connection, call)

    def _wait(self, address: Address | None, call: Call) -> None:
        self._waiting.setdefault(address, deque()).append(call)
        if address not in self._connecting:
            work = self._find() if address is None else self._connect(address)
            self._connecting[address] = asyncio.create_task(self._until_served(address, work))

    async def _until_served(self, address: Address | None, work: Coroutine[Any, Any, None]) -> None:
        """Runs what calls wait for; those that still wait afterwards fail."""
        error: FleetError = FleetUnavailable("Redis is not available: connecting was given up")
        try:
            await work
        except FleetError as failure:
            error = failure
        finally:
            del self._connecting[address]
            for call in self._waiting.pop(address, ()):
                self._finish(call, error)

    async def _find(self) -> None:
        """Finds the servers."""
        while None in self._waiting:
            asked_for = set(self._stale)
            await self._directory.refresh()
            self._stale -= asked_for
            for call in self._waiting.pop(None):
                if self._directory.lookup(call.key) is None:
                    missing = "Redis is not available: no server holds the pool's keys"
                    self._finish(call, FleetUnavailable(missing))
                else:
                    self._send(call)

    async def _connect(self, address: Address) -> None:
        try:
            connection = await open_connection(address, self._replied, self._lost)
        except FleetUnavailable:
            self._stale.add(address)
            raise
        self._connections[address] = connection
        for call in self._waiting.pop(address):
            _send_on(connection, call)

    def _replied(self, connection: Connection, call: Call, reply: Reply) -> None:
        if not isinstance(reply, Refused):
            self._finish(call, reply)
            return
        word = refusal_word(reply.message)
        if word == "NOSCRIPT" and call.script and not call.repeated:
            call.repeated = True
            connection.send(Call("", call.script, _ignore))
            connection.send(call)
            return
        if word in OTHER_NODE and not self._directory.is_cluster:
            error = FleetUnavailable(f"Redis is not available: {NEEDS_CLUSTER_URL}")
            self._finish(call, error)
            return
        if word in WRONG_SERVER:
            connection.close()  # its name may lead to the new master
        if word in WRONG_SERVER or word == "MOVED":
            self._doubt(connection)
            if call.key and not call.repeated:
                call.repeated = True
                self._send(call)
                return
        self._finish(call, refusal(reply.message))

    def _lost(self, connection: Connection, calls: list[Call], late: bool) -> None:
        self._doubt(connection)
        for address, known in tuple(self._connections.items()):
            if known is connection:
                del self._connections[address]
        for call in calls:
            if not call.key:  # the connection's own command
                call.answer(FleetUnavailable("Redis is not available: it closed the connection"))
            elif late:
                self._finish(call, FleetUnavailable("Redis is not available: no answer in time"))
            elif call.repeated or self._closed:
                self._finish(call, FleetUnavailable("Redis is not available: connection lost"))
            else:
                call.repeated = True
                self._send(call)

    def _doubt(self, connection: Connection) -> None:
        """Makes the next call look up the connection's server again."""
        self._stale |= {a for a, known in self._connections.items() if known is connection}

    def _finish(self, call: Call, reply: Reply) -> None:
        if call.key:
            self._under_way -= 1
        call.answer(reply)


def _send_on(connection: Connection, call: Call) -> None:
    """Sends the script first, once per connection: a call repeated because the script was missing
    would run after what was sent later."""
    if call.script and call.script not in connection.scripts:
        connection.scripts.add(call.script)
        connection.send(Call("", call.script, _ignore))
    connection.send(call)


def answer_to(future: asyncio.Future[Any]) -> Answer:
    """Settles a future, unless its owner has cancelled it."""

    def answer(reply: Reply) -> None:
        if future.done():
            return
        if isinstance(reply, FleetError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    return answer


def _ignore(reply: Reply) -> None:
    """Ignores the answer: a script that cannot be loaded fails again when it is called."""
