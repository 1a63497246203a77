"""How long a returning server must answer before it counts as up again.

The first time one answer suffices, because a restart is over with it. A server that flaps must
answer for longer, or each flap would cost a request its time limit and the log two lines.
"""

RELAPSE_S = 60.0
"""A server that fails within this time after its return has relapsed."""

FIRST_CALM_S, LONGEST_CALM_S = 1.0, 60.0
"""After the first relapse, and the limit of its doubling by each further one."""


class Calm:
    """Times are in seconds, by any monotonic clock."""

    def __init__(self) -> None:
        self._needed_s = 0.0
        self._since: float | None = None  # since when it answers without a failure
        self._back_at: float | None = None  # since when it counts as up; None: it is away

    def failed(self, now: float) -> None:
        """The server did not answer in time."""
        self._since = None
        if self._back_at is not None:
            relapsed = now - self._back_at < RELAPSE_S
            longer_s = min(max(FIRST_CALM_S, 2 * self._needed_s), LONGEST_CALM_S)
            self._needed_s = longer_s if relapsed else 0.0
            self._back_at = None

    def answered(self, now: float) -> bool:
        """The server answered in time. Returns whether it counts as up."""
        if self._since is None:
            self._since = now
        if self._back_at is None and now - self._since >= self._needed_s:
            self._back_at = now
        return self._back_at is not None
