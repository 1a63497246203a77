"""The memory of a tree's chunk in Redis: bytes of used_memory, by the size of the tree.

Run: python -m bench.router.tree_memory [PATH-OF-A-SERVER ...]. Without a path it measures the
Valkey and the Redis that the tests use. Prompts of 8 chunks are touched like placements do.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from redis.exceptions import ConnectionError

from pando_fleet.placement.prefix import chunk_keys
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis.client import RedisClient, connect
from tests.fleet.redis_server import REDIS, VALKEY

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)  # chunks
CHUNKS = 8  # of a prompt
AT_ONCE = 16


async def measure(binary: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "s"
        server = await asyncio.create_subprocess_exec(
            str(binary), "--port", "0", "--unixsocket", str(socket), "--save", "",
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        redis = connect(f"unix://{socket}")
        try:
            await up(redis)
            info = await redis.info()
            name = "valkey" if "valkey_version" in info else "redis"
            print(name, info.get("valkey_version", info["redis_version"]), info["mem_allocator"])
            tree = PrefixTree(redis, "p")
            for _ in range(3):  # creates connections and their buffers
                await asyncio.gather(*(tree.touch("warm", "1", path(0), 8) for _ in range(AT_ONCE)))
            for size in SIZES:
                before = int((await redis.info("memory"))["used_memory"])
                for first in range(0, size, CHUNKS * AT_ONCE):
                    numbers = range(first, min(first + CHUNKS * AT_ONCE, size), CHUNKS)
                    touches = (tree.touch(str(size), "1", path(n), 1 << 30) for n in numbers)
                    await asyncio.gather(*touches)
                held = await tree.size(str(size), "1")
                after = int((await redis.info("memory"))["used_memory"])
                print(f"  {held:>7} chunks: {(after - before) / held:6.1f} bytes each")
        finally:
            await redis.aclose()
            server.terminate()
            await server.wait()


async def up(redis: RedisClient) -> None:
    while True:
        try:
            await redis.ping()
            return
        except ConnectionError:
            await asyncio.sleep(0.01)


def path(number: int) -> bytes:
    return chunk_keys(f"prompt {number} ".encode().ljust(256 * CHUNKS, b"."), seed=0)


async def main(binaries: list[Path]) -> None:
    for binary in binaries:
        await measure(binary)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("server", nargs="*", type=Path, help="path of a server's binary")
    asyncio.run(main(parser.parse_args().server or [VALKEY, REDIS]))
