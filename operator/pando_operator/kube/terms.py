"""`Terms`: the durations of a lease, apart so that settings need no Kubernetes client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Seconds. Raises ValueError unless retry < renew < duration, with room for a few tries."""

    duration_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not (0 < 2 * self.retry_s <= self.renew_s < self.duration_s):
            raise ValueError(
                "a lease needs 2 · retry <= renew < duration, not "
                f"retry {self.retry_s} s, renew {self.renew_s} s, duration {self.duration_s} s"
            )
