"""The bounds of what is kept of /v1/responses, against a list that keeps everything."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pando_worker.server.endpoints.responses import begun_response
from pando_worker.server.kept_responses import KeptResponses
from pando_worker.server.protocol.chats.responses import ResponsesRequest

LIMIT, LIFETIME_S = 6000, 100.0
TENANTS = ("", "a")


@dataclass
class Model:
    """In the order of their last use: tenant, id, size, time of use."""

    uses: list[tuple[str, str, int, float]] = field(default_factory=list)

    def use(self, tenant: str, name: str, size: int, now: float) -> None:
        self.uses = [use for use in self.uses if use[:2] != (tenant, name)]
        self.uses.append((tenant, name, size, now))

    def shrink(self, now: float) -> None:
        while self.uses and (self.size > LIMIT or self.uses[0][3] < now - LIFETIME_S):
            self.uses.pop(0)

    @property
    def size(self) -> int:
        return sum(use[2] for use in self.uses)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "add again", "find", "remove", "wait")),
        st.sampled_from(TENANTS),
        st.integers(0, 30),
        st.sampled_from((0, 10, 2000, 9000)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_least_recently_used_go_first_and_no_tenant_finds_anothers(
    steps: list[tuple[str, str, int, int]],
) -> None:
    now = 0.0
    kept, model = KeptResponses(LIMIT, LIFETIME_S, lambda: now), Model()
    ids: list[tuple[str, str]] = []
    for step, tenant, number, length in steps:
        now += 1
        owner, name = ids[number % len(ids)] if ids else (tenant, "none")
        match step:
            case "add" | "add again":
                resumed = name if step == "add again" and ids else None
                body = ResponsesRequest(model="m", input="x" * length, resume_response_id=resumed)
                response = begun_response(body, "m")
                kept.add(tenant, response, (), body.items)
                if (found := kept.find(tenant, response.id)) is not None:
                    model.use(tenant, response.id, found.size, now)
                    ids.append((tenant, response.id))
                else:
                    assert length > LIMIT
                    model.uses = [use for use in model.uses if use[:2] != (tenant, response.id)]
            case "find":
                known = any(use[:2] == (tenant, name) for use in model.uses)
                found = kept.find(tenant, name)
                model.shrink(now)
                assert (found is not None) == any(
                    use[:2] == (tenant, name) for use in model.uses
                ) and (found is None or known)
                if found is not None:
                    model.use(tenant, name, found.size, now)
            case "remove":
                model.shrink(now)
                there = any(use[:2] == (owner, name) for use in model.uses)
                assert kept.remove(owner, name) == there
                model.uses = [use for use in model.uses if use[:2] != (owner, name)]
            case "wait":
                now += number * 10
        model.shrink(now)
        assert kept.size <= LIMIT
    kept.find("", "none")  # what is too old goes with the next use
    model.shrink(now)
    assert (len(kept), kept.size) == (len(model.uses), model.size)
