"""A replica's health as its checks say it: the verdict changes only after several in a row."""

from dataclasses import dataclass


@dataclass(slots=True)
class Verdict:
    """Healthy until `unhealthy_after` checks in a row failed, then until `healthy_after` passed.

    Envoy's `unhealthy_threshold` and `healthy_threshold`.
    """

    unhealthy_after: int
    healthy_after: int
    healthy: bool = True
    against: int = 0  # checks in a row that speak against the verdict

    def count(self, passed: bool) -> bool:
        """Whether this check changed the verdict."""
        if passed is self.healthy:
            self.against = 0
            return False
        self.against += 1
        if self.against < (self.unhealthy_after if self.healthy else self.healthy_after):
            return False
        self.healthy, self.against = passed, 0
        return True
