"""`Local`: a rule that chooses by what its router knows, and leases nothing anywhere."""

from collections.abc import Callable

from pando_fleet.prefix import CHUNK_BYTES
from pando_sim.fleet.interfaces import End, Member, Place, Question

Choose = Callable[[Question], tuple[Member, int]]
"""One of those that are allowed, and how many of the prompt's chunks it is believed to hold."""


def place_at(question: Question, member: Member, matched_chunks: int) -> Place:
    matched_bytes = min(matched_chunks * CHUNK_BYTES, question.prompt_bytes)
    return Place(
        member.name,
        member.beat.incarnation,
        matched_chunks,
        matched_bytes * question.prompt_tokens // max(question.prompt_bytes, 1),
    )


class Local:
    """Never short of a place: what is too much waits at the replicas."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    async def place(self, question: Question) -> Place:
        return place_at(question, *self._choose(question))

    def first_byte(self, question: Question, place: Place, cached_tokens: int) -> None:
        pass

    def renew(self, question: Question, place: Place) -> None:
        pass

    def ended(self, question: Question, place: Place, end: End) -> None:
        pass

    def close(self) -> None:
        pass
