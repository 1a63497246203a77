"""`Local`: a policy that chooses by its router's own knowledge, without leases."""

from typing import Protocol

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.core.route import Lease, Route
from pando_sim.fleet.routing.interfaces import POOL, Member, Question


def route_to(
    question: Question, member: Member, matched_chunks: int, lease: Lease | None = None
) -> Route:
    matched_bytes = min(matched_chunks * CHUNK_BYTES, question.prompt_bytes)
    return Route(
        POOL,
        member.name,
        member.beat.incarnation,
        member.beat.url,
        lease,
        matched_chunks=matched_chunks,
        matched_tokens=matched_bytes * question.prompt_tokens // max(question.prompt_bytes, 1),
    )


class Chooser(Protocol):
    def choose(self, question: Question) -> tuple[Member, int]:
        """One of the allowed members, and how many of the prompt's chunks it is expected to
        hold."""
        ...


class Local:
    """Always finds a place: excess requests wait at the replicas."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser

    async def place(self, question: Question) -> Route:
        return route_to(question, *self._chooser.choose(question))

    def close(self) -> None:
        pass
