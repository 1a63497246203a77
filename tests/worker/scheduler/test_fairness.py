"""How long a request may wait: the combined guarantee of `WaitingQueue` and `PromptBudget`."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.messages import LogprobsWanted, Pooling
from pando_worker.policies.schedule import SCHEDULE_POLICIES
from tests.examples import examples
from tests.worker.scheduler.world import World

BUDGET = 32
MOST_PASSED_OVER = 2


@dataclass(frozen=True)
class Asked:
    kind: str  # of a request
    length: int  # of its prompt
    shared: int  # tokens of it that all prompts have in common
    gap: int  # steps until the next request


ASKED = st.builds(
    Asked,
    kind=st.sampled_from(["plain", "plain", "scored", "mean", "grammar", "urgent", "late"]),
    length=st.integers(1, 12) | st.integers(60, 300),
    shared=st.sampled_from([0, 0, 40, 200]),
    gap=st.sampled_from([0, 0, 0, 1, 3]),
)


def bound(prompts: list[int], index: int) -> float:
    """Steps until the first token of request `index`, in a pool with room for all.

    Earlier prompts run before it, and as many later ones as may overtake it. It and each of these
    get at least half of each step when they are first in line. Each prompt's completion may be seen
    a step late, and each may wait a step for its prefix.
    """
    later = sorted(prompts[index + 1 :], reverse=True)[: MOST_PASSED_OVER + 1]
    ahead = [*prompts[: index + 1], *later]
    return sum(-(-each // (BUDGET // 2)) for each in ahead) + 2 * len(ahead) + 2


@settings(max_examples=examples(60))
@given(
    asked=st.lists(ASKED, min_size=2, max_size=14),
    policy=st.sampled_from([*SCHEDULE_POLICIES]),
    overlap=st.booleans(),
)
def test_the_wait_of_a_request_is_bounded_by_the_work_ahead_of_it(
    asked: list[Asked], policy: str, overlap: bool
) -> None:
    now = 0.0
    world = World(
        pages=8192,
        page_size=1,
        max_running=64,
        chunked_prefill_size=BUDGET,
        max_passed_over=MOST_PASSED_OVER,
        schedule_policy=policy,
        overlap_schedule=overlap,
        clock=lambda: now,
    )
    came: list[int] = []
    waited: dict[int, int] = {}
    todo, step, wait = list(asked), 0, 0
    while todo or not world.scheduler.is_idle:
        while todo and wait <= 0:
            each = todo.pop(0)
            send(world, f"{len(came)}", each)
            came.append(step)
            wait = each.gap
        world.step()
        step, wait, now = step + 1, wait - 1, now + 0.01
        for index, at in enumerate(came):
            rid = f"{index}"
            if index not in waited and (world.tokens[rid] or rid in world.embeddings):
                waited[index] = step - at
    lengths = [each.length for each in asked]
    assert len(waited) == len(asked)
    for index, steps in waited.items():
        assert steps <= bound(lengths, index), (asked[index], steps)


def send(world: World, rid: str, asked: Asked) -> None:
    own = range(1000, 1000 + asked.length)
    prompt = [*range(asked.shared), *(1000 + int(rid) * 400 + i for i in range(len(own)))]
    prompt = prompt[: asked.length]
    match asked.kind:
        case "mean":
            world.embed(rid, prompt, Pooling.MEAN)
        case "scored":
            wanted = LogprobsWanted(top=0, prompt_start=0)
            world.send(rid, prompt, max_new_tokens=1, logprobs=wanted)
        case "grammar":
            world.send(rid, prompt, max_new_tokens=1, grammar="even")
        case "late":
            world.send(rid, prompt, max_new_tokens=1, deadline_s=1000.0)
        case kind:
            world.send(rid, prompt, max_new_tokens=1, priority=-9 if kind == "urgent" else 0)
