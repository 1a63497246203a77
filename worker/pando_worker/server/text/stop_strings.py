"""Finds stop strings in text that arrives in pieces, and holds back text that may become one.

The result does not depend on how the text was cut into pieces: the text ends as soon as a stop
string is complete; of several that are complete at the same character, the longest counts.
"""

from collections.abc import Iterable


class StopStrings:
    """Feed text to `push` until it reports a match in `matched`, or call `flush` at the end.

    One Knuth-Morris-Pratt automaton per stop string, so a character costs O(1) amortised for each.
    """

    def __init__(self, stops: Iterable[str], *, include: bool = False) -> None:
        """`stops` must not be empty strings; with `include`, the text keeps the stop string."""
        self._automata = [_Automaton(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._include = include
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that is now certain; text after a match is dropped."""
        if not self._automata:
            return text
        start = len(self._held)
        self._held += text
        for end, char in enumerate(text, start + 1):
            for automaton in self._automata:
                if automaton.step(char):
                    self.matched = automaton.stop
                    return self._release(end if self._include else end - len(automaton.stop))
        return self._release(len(self._held) - max(a.length for a in self._automata))

    def flush(self) -> str:
        """The text that was held back, at the end of a text without a match."""
        return self._release(len(self._held))

    def _release(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text


class _Automaton:
    """The length of the longest beginning of one stop string that the text so far ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0
        self._borders = _borders(stop)

    def step(self, char: str) -> bool:
        """Read one character; True if it completes the stop string."""
        while self.length and self.stop[self.length] != char:
            self.length = self._borders[self.length - 1]
        self.length += self.stop[self.length] == char
        return self.length == len(self.stop)


def _borders(word: str) -> list[int]:
    """For every prefix of `word`, the length of its longest proper prefix that is also a suffix."""
    borders = [0] * len(word)
    length = 0
    for i in range(1, len(word)):
        while length and word[i] != word[length]:
            length = borders[length - 1]
        length += word[i] == word[length]
        borders[i] = length
    return borders
