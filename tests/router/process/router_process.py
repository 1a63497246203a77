"""A router as a process, for tests of its start, its end, and of state shared by processes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.ports import free_port
from tests.router.world import RouterClient, until

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("fleet", "router")),
}
_SERVE = """
import json, logging, sys
from pando_router.serve import run
from pando_router.configuration.settings import RouterSettings
if __name__ == "__main__":
    sys.exit(run(RouterSettings(**json.loads(sys.argv[1])), logging.basicConfig))
"""


@asynccontextmanager
async def router_process(
    redis_url: str,
    *,
    ready_path: str = "/readyz",
    before: Callable[[], None] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, RouterClient]]:
    """A process that does not wait to leave, and a client that opens a connection for each request.
    `before` runs in the process first."""
    port = free_port()
    settings = {"leave_seconds": 0, **settings}
    given = json.dumps({"redis": redis_url, "port": port, **settings})
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SERVE, given), env=ENVIRONMENT, preexec_fn=before
    )
    try:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            router = RouterClient(port, session)
            await until(lambda: is_ready(router, ready_path), "the router's process being ready")
            yield child, router
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def is_ready(router: RouterClient, path: str = "/readyz") -> bool:
    try:
        return (await router.get(path)).status == 200
    except aiohttp.ClientConnectionError:
        return False
