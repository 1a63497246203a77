"""Which arriving body makes room for another."""

from dataclasses import dataclass, field
from math import inf

from pando_fleet.current import Current
from pando_fleet.http.server.bodies import SLOW_BYTES_S, Bodies


@dataclass(eq=False)
class Body:
    bodies: Bodies
    client: str
    rate: float = inf
    taken: int = 0
    is_cut: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        size, self.taken = self.taken, 0
        assert self.bodies.begins(self)
        assert self.grows(size)

    def grows(self, size: int) -> bool:
        if fits := self.bodies.take(size, self):
            self.taken += size
        return fits

    def bytes_s(self) -> float:
        return self.rate

    def cut(self) -> None:
        self.bodies.budget.give_back(self.taken)
        self.taken = 0
        self.is_cut = True


def test_slowest_body_makes_room_whoever_sends_it() -> None:
    bodies = Bodies(Current(100), Current(9))
    fast = Body(bodies, "a", SLOW_BYTES_S, taken=50)
    slow = Body(bodies, "a", 10.0, taken=25)
    slowest = Body(bodies, "b", 1.0, taken=25)
    new = Body(bodies, "b")
    assert new.grows(20)
    assert [body.is_cut for body in (fast, slow, slowest)] == [False, False, True]
    assert new.grows(20)
    assert [body.is_cut for body in (fast, slow)] == [False, True]
    assert bodies.budget.held == 90


def test_client_that_holds_most_makes_room_for_others_and_not_for_itself() -> None:
    bodies = Bodies(Current(100), Current(9))
    first, second = (Body(bodies, "greedy", rate, taken=40) for rate in (2e6, 1e6))
    other = Body(bodies, "modest", taken=20)
    assert not Body(bodies, "greedy").grows(10)
    assert not first.is_cut
    assert other.grows(10)
    assert second.is_cut, "the slower of its two"
    assert not other.grows(50), "it would hold more itself"
    assert not first.is_cut


def test_places_are_shared_like_bytes() -> None:
    bodies = Bodies(Current(100), Current(3))
    many = [Body(bodies, "greedy") for _ in range(3)]
    new = Body(bodies, "modest")
    assert [body.is_cut for body in many].count(True) == 1
    assert bodies.arriving == 3
    bodies.ends(new)
    assert bodies.arriving == 2


def test_complete_bodies_stay() -> None:
    bodies = Bodies(Current(100), Current(3))
    complete = Body(bodies, "a", 0.0, taken=90)
    bodies.ends(complete)
    assert not Body(bodies, "b").grows(20)
    assert not complete.is_cut
