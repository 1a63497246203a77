"""A worker whose Redis user has the keys of its namespace's pools only, as docs/redis.md lists."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError

from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.redis.client import FleetError, connect
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import ReplicaState
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.worker.server.process.test_heartbeat import fleet_at
from tests.worker.server.process.worker_process import WorkerProcess

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[4] / "docs" / "redis.md"


def rules() -> list[str]:
    """The page's rules for a namespace's user: its keys, and the commands of the fleet's user."""
    keys = re.search(r"^user team-a on >\S+ (resetchannels .*?)$", PAGE.read_text(), re.M)
    fleet = re.search(r"^user pando on .*?\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert keys and fleet
    commands = fleet[1].replace("\\", " ").split()
    return [rule for rule in keys[1].split() if not rule.startswith("…")] + commands


@dataclass(frozen=True, slots=True)
class Server:
    fleet: str  # URL of the fleet's user
    tenant: str  # of the namespace's user
    admin: "redis.Redis"


@pytest.fixture
def server(start_valkey: Callable[..., RedisServer]) -> Iterator[Server]:
    started = start_valkey(port=free_port())
    where = f"127.0.0.1:{started.port}"
    with started.admin() as admin:
        admin.execute_command("ACL", "SETUSER", "team-a", "reset", "on", ">secret", *rules())
        yield Server(f"redis://{where}/0", f"redis://team-a:secret@{where}/0", admin)


async def test_a_worker_needs_its_own_pools_keys_alone(server: Server) -> None:
    """It joins, leaves with a hand-off open, and nothing is denied."""
    async with fleet_at(server.fleet, "team-a/chat") as fleet:
        with WorkerProcess.start(redis=server.tenant, pool="team-a/chat", replica="one") as worker:
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            client = connect(server.fleet)
            await Marks(client, "team-a/chat").set(
                MarkKind.DRAIN, "one", lasts_ms=60_000, budget_tokens=0
            )
            await client.aclose()
            worker.process.terminate()
            worker.process.wait(60)
            await fleet.read()
            assert fleet.beat is None
    denied = {str(entry["object"]) for entry in server.admin.acl_log()}
    assert denied <= {"client|setinfo", "client"}  # redis-py's own


async def test_another_namespaces_trees_and_heartbeats_are_out_of_reach(
    server: Server,
) -> None:
    server.admin.hset("pando:{team-b/chat}:tree:1:a", "x", "their prompts")
    with redis.Redis.from_url(server.tenant) as mine:
        assert mine.hgetall("pando:{team-a/chat}:tree:1:a") == {}
        for key in ("pando:{team-b/chat}:tree:1:a", "pando:{team-b/chat}:beats"):
            with pytest.raises(NoPermissionError):
                mine.hgetall(key)
    client = connect(server.tenant)
    with pytest.raises(FleetError):
        await Registry(client).replicas("team-b/chat")
    await client.aclose()
