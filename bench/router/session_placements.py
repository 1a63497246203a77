"""What Redis does for a placement without and with `bound_sessions`, beside few and many sessions.

Run: python -m bench.router.session_placements. Counts the instructions of its own Valkey with
valgrind, which has to be installed, so other load does not matter. Calls have one prompt of 128
chunks, each with a later time than the one before, so that sessions are counted as often as with so
many calls a second. `new` are calls of new sessions, `single` those of a pool where nothing
returns, the others continue one.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator

from msgspec.structs import astuple
from redis.asyncio import Redis

from bench.router.counting import Counter, counted_valkey
from bench.router.placement import POOL, beats
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES, chunk_keys
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import Place, Prompt
from pando_fleet.redis.layout.constants import Mode
from pando_fleet.redis.layout.rows import SESSION, WORKING_SET, SessionRow, WorkingSetRow
from pando_fleet.redis.scripts import Script
from pando_fleet.registry.registry import Registry

REPLICAS = 8
SESSIONS = (1, 100, 1_000)  # with more, heartbeats would be stale before the second count
CHUNKS = 128
RATE = 500  # calls a second
LEAST_CALLS = 125
KEYS = PoolKeys(POOL)


def prompt(number: int, *, bounds: bool) -> Prompt:
    """Of the session of this number."""
    keys = chunk_keys(b"s" * (CHUNKS * CHUNK_BYTES), seed=1_000 + number)
    return Prompt(
        path=keys[: KEY_BYTES * CHUNKS],
        prompt_tokens=64 * CHUNKS,
        output_tokens=100,
        lease=f"router-6f7c9d-abcde:17-{number}",
        lease_ms=600_000,
        tie=0,
        max_outstanding=0,
        every=0,
        bounds_sessions=int(bounds),
        may_wait=0,
        session="",
        only="",
        adapter="",
        excluded=0,
    )


def place(now_ms: int) -> Place:
    leases, parts, loads = KEYS.leases
    return Place(
        now=now_ms,
        mode=Mode.PLACE,
        replicas=KEYS.replicas,
        terms=KEYS.terms,
        adapters=KEYS.adapters,
        leases=leases,
        parts=parts,
        loads=loads,
        sessions=KEYS.sessions,
        tree_prefix=KEYS.tree_prefix,
    )


def paused_sessions(count: int, now_ms: int) -> Iterator[tuple[str, bytes]]:
    row = SessionRow(
        base=0.0,
        held=8_000.0,
        since=now_ms - 60_000,
        paused=now_ms - 30_000,
        calls=2.0,
        lease="it",
        waits=0.0,
        name="",
    )
    for number in range(count):
        yield f"{number:08}", SESSION.pack_row(row)


def nothing_returned(now_ms: int) -> bytes:
    """What a pool knows of its sessions."""
    nothing = dict.fromkeys(WorkingSetRow._fields, 0.0)
    return WORKING_SET.pack_row(
        WorkingSetRow(**{**nothing, "counted": float(now_ms), "tokens_stayed": 1e12})
    )


async def instructions(
    redis: Redis,
    counter: Counter,
    sessions: int | None,
    *,
    are_new: bool = False,
    returns: bool = True,
) -> float:
    """A placement, beside so many sessions that pause; None: without the bound."""
    await redis.flushall()
    now_ms, run, bounds = int(1000 * time.time()), Script(redis, Place), sessions is not None
    registry = Registry(redis, clock=lambda: now_ms)
    for beat in beats(REPLICAS):
        await registry.beat(POOL, beat)
    for field, row in paused_sessions((sessions or 1) - 1, now_ms):
        await redis.hset(KEYS.sessions, field, row)
    if not returns:
        await redis.hset(KEYS.sessions, "", nothing_returned(now_ms))
    await run(place(now_ms), *astuple(prompt(0, bounds=bounds)))
    calls = max(LEAST_CALLS, RATE * (sessions or 0) // 1000)  # between two counts
    counter.start()
    for number in range(1, calls + 1):
        now_ms += 1000 // RATE
        one = prompt(number if are_new else 0, bounds=bounds)
        await run(place(now_ms), *astuple(one))
        if are_new:
            await redis.delete(*KEYS.leases)
    return counter.instructions() / calls


async def main() -> None:
    print(f"{'sessions':<10} {'thousand instructions a placement':>33} {'times':>6}")
    async with counted_valkey() as (redis, counter):
        alone = await instructions(redis, counter, None)
        print(f"{'no bound':<10} {alone / 1000:>33.0f} {1:>6.2f}")
        cases = {
            "single": await instructions(redis, counter, 1, are_new=True, returns=False),
            "new": await instructions(redis, counter, 1, are_new=True),
            **{f"{count:,}": await instructions(redis, counter, count) for count in SESSIONS},
        }
        for name, found in cases.items():
            print(f"{name:<10} {found / 1000:>33.0f} {found / alone:>6.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    asyncio.run(main())
