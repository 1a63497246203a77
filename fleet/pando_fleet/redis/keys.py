"""The names of all keys in Redis; `fleet/README.md` describes their contents.

The braces are Redis Cluster's hash tag: all keys of a pool are in one slot, so one script may use
them together.
"""

from dataclasses import dataclass

from pando_fleet.redis import misfits
from pando_fleet.redis.client import FleetError

POOLS = "pando:pools"
POOLS_COPIES = (POOLS, "pando:pools:1", "pando:pools:2")
"""In a cluster the pools' names are kept in each of these, whose slots (8553, 1140 and 13335) are
far apart, so pools can be found while a master is down."""
EXPECTED = "pando:expected"
DECISIONS = "pando:decisions"
RECORDING = "pando:recording"


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """Keys of one pool. Raises FleetError if the name cannot be part of a hash tag."""

    pool: str

    def __post_init__(self) -> None:
        if not self.pool or set("{}") & set(self.pool):
            raise FleetError(f"a pool's name must not be empty or contain braces: {self.pool!r}")

    def _name(self, what: str) -> str:
        return f"pando:{{{self.pool}}}:{what}"

    @property
    def replicas(self) -> str:
        return self._name("replicas")

    @property
    def beats(self) -> str:
        return self._name("beats")

    @property
    def terms(self) -> str:
        return self._name("terms")

    @property
    def adapters(self) -> str:
        return self._name("adapters")

    @property
    def marks(self) -> str:
        return self._name("marks")

    @property
    def leases(self) -> tuple[str, str, str]:
        """The keys that the lease scripts use together: ends, parts and sums."""
        return self._name("leases"), self._name("parts"), self._name("loads")

    @property
    def sessions(self) -> str:
        return self._name("sessions")

    @property
    def routers(self) -> str:
        return self._name("routers")

    @property
    def homes(self) -> tuple[str, str]:
        """When each name was last used, and its incarnation."""
        return self._name("home-ages"), self._name("homes")

    @property
    def tree_prefix(self) -> str:
        """A tree's key is this and its owner, "<incarnation>:<replica>"."""
        return self._name("tree:")

    @property
    def ledger_prefix(self) -> str:
        """A ledger's key is this, a tenant's digest, a colon and its tree's owner."""
        return self._name("ledger:")

    @property
    def queues(self) -> str:
        return self._name("queues")

    def rival(self, replica: str) -> str:
        return self._name(f"rival:{replica}")

    def upstream(self, replica: str) -> str:
        return self._name(f"upstream:{replica}")

    def tree(self, replica: str, incarnation: str) -> str:
        return f"{self.tree_prefix}{incarnation}:{replica}"


def pool_name(name: bytes) -> str | None:
    """A pool's name as Redis stores it; None if it is invalid."""
    pool = misfits.decode_name("pool", name)
    if pool is None:
        return None
    try:
        return PoolKeys(pool).pool
    except FleetError as error:
        misfits.skip("pool", pool, str(error))
        return None
