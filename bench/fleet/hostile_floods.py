"""The memory of a fleet's processes after floods of unfinished requests.

Run: python -m bench.fleet.hostile_floods
`pando up` starts two workers. 4,150 connections to the router, then 1,300 to worker-0, send the
beginning of a body and one more byte each second, beside a normal client; then all are reset. The
memory that is not of files is read while they stand, and when freed memory has had time to go back.
"""

import argparse
import asyncio
import sys

import aiohttp

from bench.fleet.hostile_table import show
from tests.e2e.hostile.beside import TRIM_S, alone, memory, neighbour
from tests.e2e.hostile.test_floods import UNFINISHED, trickling
from tests.e2e.up_process import UpProcess

STANDS_S = 5.0
FLOODS = {"router": 4150, "worker-0": 1300}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=3, help="of each flood; default: 3")
    times = parser.parse_args().times
    with UpProcess() as up:
        asyncio.run(_measure(up.wait_ready(), times))
    return 0


async def _measure(up: UpProcess, times: int) -> None:
    async with aiohttp.ClientSession() as http:
        await alone(http, up)
        for part, connections in FLOODS.items():
            url = up.url if part == "router" else up.replicas()[part]["url"]
            before = memory(up)
            show(f"before {connections} at {part}", before, before)
            for time in range(1, times + 1):
                async with neighbour(http, up.url), trickling(url, [UNFINISHED] * connections):
                    await asyncio.sleep(STANDS_S)
                    show(f"during {time}", memory(up), before)
                await asyncio.sleep(TRIM_S)
                show(f"after {time}", memory(up), before)


if __name__ == "__main__":
    sys.exit(main())
