"""Redis's time for a placement: without adapters in the pool, with 200, and for one of these.

Run: python -m bench.router.adapter_placements. Starts its own Valkey. The numbers are Redis's own
(`usec_per_call` of EVALSHA) of calls with one prompt of 64 chunks, whose lease is replaced each
time, so that all calls find the same. Rounds take turns; the least of each counts.
"""

import argparse
import asyncio
from dataclasses import replace

from redis.asyncio import Redis

from bench.router.own_valkey import own_valkey
from bench.router.placement import POOL, beats
from pando_fleet.placement.placer import Ask, Placer
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES, chunk_keys
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis.client import connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.adapter import Adapter, AdapterPlace
from pando_fleet.registry.registry import Registry

REPLICAS = (8, 64)
SLOTS, IN_HOST, ADAPTERS = 8, 100, 200
CHUNKS = 64
CALLS, ROUNDS = 1_000, 3
NOBODYS = "adapter-199"  # on disk everywhere


async def fill(redis: Redis, replicas: int, *, has_adapters: bool) -> bytes:
    """Returns the keys of the prompt, of which each replica holds another part."""
    keys = chunk_keys(b"s" * (CHUNKS * CHUNK_BYTES), seed=0)
    tree, registry = PrefixTree(redis, POOL), Registry(redis)
    for number, beat in enumerate(beats(replicas)):
        if has_adapters:
            states = tuple(adapter(index, number) for index in range(ADAPTERS))
            beat = replace(
                beat,
                adapter_states=states,
                adapter_slots=SLOTS,
                free_adapter_slots=SLOTS,
                adapter_load_s=0.05,
                adapter_read_s=0.5,
            )
        await registry.beat(POOL, beat)
        held = keys[: KEY_BYTES * CHUNKS * (number % 8) // 8]
        await tree.touch(beat.replica, beat.incarnation, held, 10**6)
    return keys


def adapter(index: int, replica: int) -> Adapter:
    place = AdapterPlace.DEVICE if index % 25 == replica % 25 else AdapterPlace.DISK
    if place is AdapterPlace.DISK and index < IN_HOST:
        place = AdapterPlace.HOST
    return Adapter(name=f"adapter-{index}", place=place)


async def usec(redis: Redis, replicas: int, *, has_adapters: bool, needs: str = "") -> float:
    await redis.flushall()
    keys = await fill(redis, replicas, has_adapters=has_adapters)
    wire = Wire(redis)
    placer = Placer(wire, POOL, every_s=None)
    ask = Ask(
        keys=keys,
        prompt_tokens=64 * CHUNKS,
        output_tokens=100,
        lease="the only one",
        lease_ms=60_000,
        adapter=Adapter(name=needs).key if needs else "",
    )
    for is_counted in (False, True):
        await redis.config_resetstat()
        for _ in range(CALLS if is_counted else CALLS // 5):
            await placer.place(ask)
    spent = (await redis.info("commandstats"))["cmdstat_evalsha"]["usec_per_call"]
    await wire.aclose()
    return float(spent)


async def main() -> None:
    with own_valkey() as server:
        redis = connect(server.connection_url)
        assert isinstance(redis, Redis)
        for replicas in REPLICAS:
            rounds = [
                (
                    await usec(redis, replicas, has_adapters=False),
                    await usec(redis, replicas, has_adapters=True),
                    await usec(redis, replicas, has_adapters=True, needs="adapter-3"),
                    await usec(redis, replicas, has_adapters=True, needs=NOBODYS),
                )
                for _ in range(ROUNDS)
            ]
            words = (f"{min(times):.1f}" for times in zip(*rounds, strict=True))
            print(f"| {replicas} | {' | '.join(words)} |", flush=True)
        await redis.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    asyncio.run(main())
