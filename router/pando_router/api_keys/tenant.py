"""A tenant: whoever has an API key, with what they may do and what they get."""

from dataclasses import dataclass, field

from pando_fleet.records.rate_limits import Limits

ANY_MODEL = "*"
NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    name: str
    models: frozenset[str] = frozenset((ANY_MODEL,))  # as clients name them
    limits: Limits = NO_LIMITS
    weight: float = 1.0  # of the tenant's turns in the queue
    priority: int = 0  # of the tenant's requests among all tenants', higher first
    isolate: bool = False  # shares no cached prefix with anybody else
    share: float = 1.0  # of each replica's tree, at most; below 1 only where `isolate`
    secret: bytes = field(default=b"", repr=False)  # unlike a name, unknown to other tenants
    admin: bool = False  # may see what concerns all tenants

    def may_use(self, model: str) -> bool:
        return ANY_MODEL in self.models or model in self.models

    @property
    def salt(self) -> str:
        """What begins the tenant's prefixes; empty where they are shared."""
        return self.name if self.isolate else ""


OPEN = Tenant(name="", admin=True)
"""Everybody, where no keys are configured."""
