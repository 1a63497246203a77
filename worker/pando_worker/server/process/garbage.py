"""How often Python looks for garbage among all objects of the HTTP process."""

import gc

FEW, YOUNG, ALL = 700, 10, 100
"""After 700 new objects the newest are looked at, after ten times that the young ones, as by
default; all after 100 of those, not 10: among 52,000 objects, such as the lists of large bodies,
that takes the event loop 11 ms, and they are no garbage while their body is read. What a request
leaves behind has no cycles, so little waits for it. Large bodies have all looked at once they are
served (`free_memory.Trimmer`)."""


def look_for_little_garbage() -> None:
    """Exempts the objects that exist now, which live to the end, and looks at all others rarely."""
    gc.freeze()
    gc.set_threshold(FEW, YOUNG, ALL)
