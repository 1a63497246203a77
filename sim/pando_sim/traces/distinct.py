"""`Distinct`: how many different names there are, in bounded memory."""

from bisect import insort

MOST = 4096
"""Names that are held; with more, their number is estimated, to about 1.6 %."""


class Distinct:
    """Counts names that are hexadecimal hashes of equal length, such as a recording's sessions.

    It holds the MOST smallest ones. Hashes are spread evenly, so the largest one held tells how
    dense they are (k minimum values: Bar-Yossef et al., RANDOM 2002).
    """

    def __init__(self) -> None:
        self._held: list[str] = []  # in order
        self._names: set[str] = set()  # the same
        self.is_exact = True

    def add(self, name: str) -> None:
        if name in self._names:
            return
        if len(self._held) == MOST:
            self.is_exact = False
            if name > self._held[-1]:
                return
            self._names.remove(self._held.pop())
        insort(self._held, name)
        self._names.add(name)

    @property
    def count(self) -> int:
        if self.is_exact:
            return len(self._held)
        largest = self._held[-1]
        return round((MOST - 1) * 16.0 ** len(largest) / int(largest, 16))
