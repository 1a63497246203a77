"""A tenant's rate limits, for settings, which do without Redis and its client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may take per minute; 0 means no limit."""

    requests: int = 0
    tokens: int = 0

    def __bool__(self) -> bool:
        return self.requests > 0 or self.tokens > 0
