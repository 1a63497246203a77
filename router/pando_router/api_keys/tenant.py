"""A tenant: a holder of API keys, with its permissions and its share of the fleet."""

from dataclasses import dataclass, field

from pando_fleet.records.limits import Limits

ANY_MODEL = "*"
NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    name: str
    models: frozenset[str] = frozenset((ANY_MODEL,))  # as clients name them
    limits: Limits = NO_LIMITS
    weight: float = 1.0  # share of turns in the queue
    priority: int = 0  # of the tenant's requests; higher ones run first
    isolate: bool = False  # shares no cached prefix with other tenants
    share: float = 1.0  # largest share of each replica's tree; below 1 only with `isolate`
    secret: bytes = field(default=b"", repr=False)  # unlike the name, unknown to other tenants
    admin: bool = False  # may see the data of all tenants

    def may_use(self, model: str) -> bool:
        return ANY_MODEL in self.models or model in self.models

    @property
    def salt(self) -> str:
        """The salt of the tenant's prefixes; empty if they are shared."""
        return self.name if self.isolate else ""


ADMIN = Tenant(name="(admin_key)", admin=True)  # no name that a key file could have
"""The tenant of the setting `admin_key`."""

OPEN = Tenant(name="", admin=True)
"""The only tenant if no keys are configured."""
