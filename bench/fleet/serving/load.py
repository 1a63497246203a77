"""Runs sessions against an endpoint: open loop (arrivals decide) or closed (users wait)."""

import asyncio
from collections.abc import Iterator

from bench.fleet.serving.client import Client, Record
from bench.fleet.serving.workloads import Session


async def open_loop(
    client: Client, sessions: Iterator[Session], arrivals: Iterator[float], limit: int
) -> list[Record]:
    """Starts a session at each arrival, whether or not earlier ones have ended."""
    start = client.clock()
    running: list[asyncio.Task[list[Record]]] = []
    for _, session, arrival in zip(range(limit), sessions, arrivals, strict=False):
        due = start + arrival
        if (wait := due - client.clock()) > 0:
            await asyncio.sleep(wait)
        running.append(asyncio.create_task(run_session(client, session, due)))
    return [record for records in await asyncio.gather(*running) for record in records]


async def closed_loop(
    client: Client, sessions: Iterator[Session], users: int, limit: int
) -> list[Record]:
    """`users` at once; each begins the next session when its last one has ended."""
    queue = iter(list(zip(range(limit), sessions, strict=False)))

    async def user() -> list[Record]:
        records: list[Record] = []
        for _, session in queue:  # one iterator for all users
            records += await run_session(client, session, None)
        return records

    return [
        record
        for records in await asyncio.gather(*(user() for _ in range(users)))
        for record in records
    ]


async def run_session(client: Client, session: Session, due: float | None) -> list[Record]:
    """Sends its turns one after the other, with the real answers between them; ends at a
    failure."""
    history = [("system", session.system)] if session.system else []
    records: list[Record] = []
    for turn in session.turns:
        history.append(("user", turn.text))
        record = await client.send(history, turn.max_tokens, due)
        records.append(record)
        if record.error is not None:
            break
        history.append(("assistant", record.text))
        due = None
    return records
