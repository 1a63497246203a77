"""A Redis Cluster of three masters, each with a third of the slots."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis.crc import key_slot

from pando_fleet.redis.keys import PoolKeys
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.waiting import PATIENCE_S

SLOTS = 16_384
NODES = 3


class Cluster:
    """Masters in the order of their slots. A slot without a master fails only its own keys."""

    def __init__(self, masters: list[RedisServer]) -> None:
        self.masters = masters

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{master.port}" for master in self.masters)
        return f"redis+cluster://{hosts}"

    def of_key(self, key: str) -> RedisServer:
        return self.masters[_third(key_slot(key.encode()))]

    def pool_on(self, master: RedisServer, but: str = "") -> str:
        """A pool name with its keys there, different from `but`."""
        names = (f"pool{number}" for number in range(1_000))
        return next(n for n in names if n != but and self.of_pool(n) is master)

    def of_pool(self, pool: str) -> RedisServer:
        return self.of_key(PoolKeys(pool).replicas)

    def begin_to_move(self, pool: str) -> None:
        """Starts to move this pool's slot to the next master; no key has arrived yet."""
        slot = key_slot(PoolKeys(pool).replicas.encode())
        source = self.of_pool(pool)
        target = self.masters[(self.masters.index(source) + 1) % NODES]
        with source.admin() as old, target.admin() as new:
            old_id, new_id = (one.execute_command("CLUSTER", "MYID").decode() for one in (old, new))
            new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", old_id)
            old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", new_id)

    def end_move(self, pool: str) -> None:
        """Cancels the move of the slot."""
        slot = key_slot(PoolKeys(pool).replicas.encode())
        for master in self.masters:
            with master.admin() as admin:
                admin.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")


@contextmanager
def cluster(start: Callable[..., RedisServer]) -> Iterator[Cluster]:
    """`start` is from the fixture `start_valkey`, which ends the servers."""
    masters = [
        start(
            "--cluster-enabled",
            "yes",
            *("--cluster-require-full-coverage", "no"),
            *("--cluster-node-timeout", "1000"),
            port=free_port(),
            config=f"cluster-port {free_port()}",
        )
        for _ in range(NODES)
    ]
    for number, master in enumerate(masters):
        first, last = -(-SLOTS * number // NODES), -(-SLOTS * (number + 1) // NODES) - 1
        with master.admin() as admin:
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            for other in masters[:number]:
                with other.admin() as known:
                    bus = known.config_get("cluster-port")["cluster-port"]
                admin.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
    deadline = time.monotonic() + PATIENCE_S
    for master in masters:
        with master.admin() as admin:
            while len(admin.execute_command("CLUSTER", "SLOTS")) < NODES:
                assert time.monotonic() < deadline, "the masters did not meet"
                time.sleep(0.02)
            while "cluster_state:ok" not in str(admin.execute_command("CLUSTER", "INFO")):
                assert time.monotonic() < deadline, "the cluster is not well"
                time.sleep(0.02)
    yield Cluster(masters)


def _third(slot: int) -> int:
    return slot * NODES // SLOTS
