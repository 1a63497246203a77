"""A replica's health by its checks, which changes only after several equal results in a row."""

from dataclasses import dataclass


@dataclass(slots=True)
class Verdict:
    """Healthy until `unhealthy_after` checks in a row failed, then until `healthy_after` passed.

    Envoy's `unhealthy_threshold` and `healthy_threshold`.
    """

    unhealthy_after: int
    healthy_after: int
    healthy: bool = True
    against: int = 0  # checks in a row that contradict the verdict

    def count(self, passed: bool) -> bool:
        """Counts a check. Returns whether it changed the verdict."""
        if passed is self.healthy:
            self.against = 0
            return False
        self.against += 1
        if self.against < (self.unhealthy_after if self.healthy else self.healthy_after):
            return False
        self.healthy, self.against = passed, 0
        return True
