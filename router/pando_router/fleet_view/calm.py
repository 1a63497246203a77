"""How long a server that comes back has to answer before it counts as up again.

The first time no longer than one answer: a restart is over when it is over. One that is up and away
in turns would otherwise cost a request its patience, and the log two lines, each time.
"""

RELAPSE_S = 60.0
"""One that fails so soon after it came back has relapsed."""

FIRST_CALM_S, LONGEST_CALM_S = 1.0, 60.0
"""After the first relapse, doubled by each further one."""


class Calm:
    """Times are in seconds, of any clock that does not go back."""

    def __init__(self) -> None:
        self._needed_s = 0.0
        self._since: float | None = None  # answers without a failure
        self._back_at: float | None = None  # it counts as up since then; None: it is away

    def failed(self, now: float) -> None:
        """It did not answer in time."""
        self._since = None
        if self._back_at is not None:
            relapsed = now - self._back_at < RELAPSE_S
            longer_s = min(max(FIRST_CALM_S, 2 * self._needed_s), LONGEST_CALM_S)
            self._needed_s = longer_s if relapsed else 0.0
            self._back_at = None

    def answered(self, now: float) -> bool:
        """It answered in time. Whether it counts as up."""
        if self._since is None:
            self._since = now
        if self._back_at is None and now - self._since >= self._needed_s:
            self._back_at = now
        return self._back_at is not None
