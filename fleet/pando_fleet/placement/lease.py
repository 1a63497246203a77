"""`Lease`: a placement from its reservation to its end, which undoes what placing did.

Placing reserves work at a replica and touches the prompt's whole path there, because the replica
will soon hold it. Only an answer makes that true, so a lease that closes without one cuts the path
to what the replica was expected to hold before. The owner of a lease closes it, or leaves its
`with` block, and need not remember anything else.
"""

from pando_fleet.placement.placer import Ask, Placement, Placer
from pando_fleet.placement.prefix import KEY_BYTES


class Lease:
    """`take` one, call `answered` at the first byte and `close` at the end. Its placer renews it.

    Calls return at once and reach Redis a few milliseconds later, see `Placer`.
    """

    __slots__ = ("_has_answered", "_is_open", "_keys", "_placer", "placement")

    def __init__(self, placer: Placer, placement: Placement, keys: bytes) -> None:
        """`keys` are the packed chunk keys of the prompt that was placed."""
        self.placement = placement
        self._placer = placer
        self._keys = keys
        self._has_answered = False
        self._is_open = True

    @classmethod
    async def take(cls, placer: Placer, ask: Ask) -> "Lease":
        """Places a prompt. Raises what `Placer.place` raises."""
        return cls(placer, await placer.place(ask), ask.keys)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answered(self, *, complete: bool = False) -> None:
        """The prompt is computed: the replica holds the path, and the prefill reservation ends.

        `complete`: the lease will be closed at once, which also ends the prefill reservation.
        """
        self._has_answered = True
        if not complete:
            self._placer.prefilled(self.placement)

    def correct(self, chunks: int) -> None:
        """The replica held only `chunks` of the path: cuts the rest."""
        if chunks * KEY_BYTES < len(self._keys):
            self._placer.cut(self.placement, self._keys, chunks)

    def close(self) -> None:
        """Ends the lease; further calls do nothing."""
        if not self._is_open:
            return
        self._is_open = False
        if not self._has_answered:
            self.correct(self.placement.chosen.matched_chunks)
        self._placer.release(self.placement)
