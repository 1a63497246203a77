"""The memory of a fleet's processes after a table of hostile requests.

Run: python -m bench.fleet.hostile_table
`pando up` starts two workers. Each request of tests/e2e/hostile/rows.py goes to the router and to
worker-0, beside a client that asks for two tokens again and again. After each time through the
table the memory that is not of files is read, when freed memory has had time to go back.
"""

import argparse
import asyncio
import sys

import aiohttp

from tests.e2e.hostile.beside import TRIM_S, alone, memory, neighbour
from tests.e2e.hostile.rows import ROWS
from tests.e2e.hostile.test_hostile import SMALL, status_of
from tests.e2e.up_process import UpProcess


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=3, help="through the table; default: 3")
    times = parser.parse_args().times
    with UpProcess(environment={"PANDO_WORKER_ADMIN_TOKEN": "of-these-workers"}) as up:
        asyncio.run(_measure(up.wait_ready(), times))
    return 0


async def _measure(up: UpProcess, times: int) -> None:
    urls = [up.url, up.replicas()["worker-0"]["url"]]
    async with aiohttp.ClientSession() as http:
        await alone(http, up)
        for row in ROWS:  # what an endpoint loads at its first use is not growth
            if len(data := row.data()) < SMALL:
                for url in urls:
                    await status_of(url, data)
        before = memory(up)
        show("before", before, before)
        for time in range(1, times + 1):
            for row in ROWS:
                data = row.data()
                for url in urls:
                    async with neighbour(http, up.url):
                        await status_of(url, data)
            await asyncio.sleep(TRIM_S)
            show(f"after {time}", memory(up), before)


def show(when: str, now: dict[str, int], before: dict[str, int]) -> None:
    for part, size in now.items():
        print(f"{when:26} {part:9} {size / 1e6:6.1f} MB, {size / before[part]:.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
