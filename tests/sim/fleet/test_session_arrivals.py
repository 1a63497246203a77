"""Sessions that are kept running: closed loops, refusals, and the end."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise

import pytest

from pando_sim.fleet.routing.context import Context, PolicyFactory
from pando_sim.fleet.routing.shared_placement import SharedPlacement
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.records import Outcome, Run, Served
from pando_sim.session import Call, Conversation, Crowd, Session
from pando_sim.spec import FleetSpec
from tests.sim.fleet.world import COST, SPEC, Words, with_router, with_worker


def calls(*lengths: int, session: int = 0, pause_s: float = 0.5) -> tuple[Call, ...]:
    """Each a longer part of the same conversation."""
    return tuple(
        Call(
            prompt=Words(tuple(range(1000 * session, 1000 * session + length))),
            output_tokens=5,
            pause_s=pause_s,
            repeated_tokens=64 * before,
        )
        for before, length in pairwise((0, *lengths))
    )


def session(number: int, *lengths: int, pause_s: float = 0.5) -> Session:
    main = Conversation(calls=calls(*lengths, session=number, pause_s=pause_s))
    return Session(name=f"session-{number}", conversations=(main,))


def play(
    at_once: int,
    until_s: float,
    spec: FleetSpec = SPEC,
    like: Session | None = None,
    lengths: tuple[int, ...] = (3, 5, 8),
    pause_s: float = 0.5,
    policy: PolicyFactory | None = None,
) -> Run:
    """Conversations of calls of these lengths; or `like` one of several."""

    def sessions() -> Iterator[Session]:
        for number in count():
            yield (
                session(number, *lengths, pause_s=pause_s)
                if like is None
                else replace(like, name=f"{number}")
            )

    return asyncio.run(
        simulate(
            spec,
            Crowd(sessions=sessions, at_once=at_once, until_s=until_s),
            cost=COST,
            policy=policy or (lambda context: SharedPlacement(context, spec.router)),
        )
    )


def of_session(run: Run, name: str) -> list[Served]:
    return sorted((one for one in run.served if one.session == name), key=lambda one: one.arrival_s)


def test_a_call_is_sent_a_pause_after_the_answer_to_the_one_before() -> None:
    found = play(1, 60.0)
    first, second, third = of_session(found, "session-0")
    assert [one.turn for one in (first, second, third)] == [0, 1, 2]
    assert first.arrival_s == 0.5
    assert second.arrival_s == first.end_s + 0.5
    assert third.arrival_s == second.end_s + 0.5
    assert (second.cached_tokens, third.cached_tokens) == (3 * 64, 5 * 64)
    (next_first, *_) = of_session(found, "session-1")
    assert next_first.arrival_s == third.end_s + 0.5


def test_as_many_sessions_run_as_are_wanted_until_the_end() -> None:
    found = play(4, 30.0)
    assert found.sessions is not None
    spans = [
        (of_session(found, name)[0].arrival_s - 0.5, of_session(found, name)[-1].end_s)
        for name in {one.session for one in found.served}
    ]
    for at_s in (3.3, 11.0, 19.7):
        assert sum(start <= at_s < end for start, end in spans) == 4
    ended = [
        name
        for name in {one.session for one in found.served}
        if len(turns := of_session(found, name)) == 3 and turns[-1].end_s < 30.0
    ]
    assert found.sessions.ended == len(ended) > 8
    assert max(one.arrival_s for one in found.served) < 30.0
    assert found.checks["no request is lost"] == 1


def test_a_subagent_runs_beside_its_parent() -> None:
    main = Conversation(calls=calls(3, 5, 8, 9, pause_s=3.0))
    aside = Conversation(calls=calls(2, 4, session=7, pause_s=0.25), after=1)
    found = play(1, 15.0, like=Session(name="", conversations=(main, aside)))
    served = of_session(found, "0")
    parent = next(one for one in served if one.turn == 1 and one.prompt_tokens == 5 * 64)
    inner = [one for one in served if one.prompt_tokens in (2 * 64, 4 * 64)]
    assert inner[0].arrival_s == parent.end_s + 0.25
    assert inner[1].arrival_s == inner[0].end_s + 0.25
    after = next(one for one in served if one.prompt_tokens == 8 * 64)
    assert after.arrival_s == parent.end_s + 3.0  # not delayed by the sub-agent


def test_a_refused_call_is_sent_again_until_it_is_answered() -> None:
    spec = replace(with_router(max_outstanding=1, queue_requests=1), replicas=1)
    found = play(4, 20.0, spec)
    refused = [one for one in found.served if one.outcome is Outcome.REFUSED]
    assert refused
    assert all(one.retry_after_s >= 1 for one in refused)
    again = {(one.session, one.turn) for one in refused}
    answered = {
        (one.session, one.turn): one for one in found.served if one.outcome is Outcome.FINISHED
    }
    late = [answered[key] for key in again if key in answered]
    assert late
    # The time to first token counts from the first time it was sent.
    for one in late:
        firsts = {each.arrival_s for each in refused if each.session == one.session}
        assert one.arrival_s in firsts
        assert one.ttft_s > 1.0


def test_a_call_that_no_replica_accepts_ends_its_session() -> None:
    spec = with_worker(context_length=400)
    found = play(1, 10.0, spec)  # the third prompt has 512 tokens
    assert found.sessions is not None
    assert found.sessions.ended == 0
    assert found.sessions.cut > 2
    assert {one.turn for one in found.served if one.outcome is Outcome.REFUSED} == {2}


def test_a_session_that_was_cut_starts_no_subagents() -> None:
    """The third call of a sub-agent is too long while its parent's second one is answered."""
    main = Conversation(calls=calls(2, 3, pause_s=1.0))
    cut = Conversation(calls=calls(2, 3, 8, session=7, pause_s=0.01), after=0)
    late = Conversation(calls=calls(4, session=8), after=1)
    found = play(
        1,
        10.0,
        with_worker(context_length=400),
        like=Session(name="", conversations=(main, cut, late)),
    )
    assert found.sessions is not None
    assert (found.sessions.ended, found.sessions.cut > 2) == (0, True)
    assert 4 * 64 not in {one.prompt_tokens for one in found.served}


def test_equal_seeds_give_equal_runs() -> None:
    first, second = (play(5, 8.0, with_router(routers=2)) for _ in range(2))
    assert repr(first.served) == repr(second.served)


def hit_rate(run: Run) -> float:
    later = [one for one in run.served if one.turn and one.outcome is Outcome.FINISHED]
    return sum(one.cached_tokens for one in later) / sum(one.repeated_tokens for one in later)


def test_with_the_bound_sessions_find_more_of_their_conversations() -> None:
    """8 sessions of up to 5,120 tokens at a replica that holds 16,384."""
    loose, bound = (
        play(
            8,
            300.0,
            replace(with_router(bound_sessions=is_on), replicas=1),
            lengths=(60, 65, 70, 75, 80),
            pause_s=15.0,
        )
        for is_on in (False, True)
    )
    assert hit_rate(bound) > hit_rate(loose) + 0.15
    assert bound.checks["leases are given back"] == 1


@pytest.mark.parametrize("name", ["llm_d_sessions", "thunder_agent"])
def test_a_policy_that_holds_calls_serves_all_of_them_and_finds_more(name: str) -> None:
    spec = replace(SPEC, replicas=1)
    loose, held = (
        play(
            8,
            300.0,
            spec,
            lengths=(60, 65, 70, 75, 80),
            pause_s=15.0,
            policy=POLICIES[policy].factory(spec),
        )
        for policy in ("llm_d", name)
    )
    assert hit_rate(held) > hit_rate(loose) + 0.15
    assert max(one.placed_s - one.arrival_s for one in held.served) > 5.0
    assert {one.outcome for one in held.served} == {Outcome.FINISHED}


def test_a_policy_hears_of_each_sessions_end_once_also_when_the_time_is_over() -> None:
    ended: list[str] = []

    def policy(context: Context) -> SharedPlacement:
        context.session_ended = ended.append
        return SharedPlacement(context, SPEC.router)

    main = Conversation(calls=calls(3, 5, 8, pause_s=3.0))
    aside = Conversation(calls=calls(2, 4, session=7, pause_s=4.0), after=1)
    found = play(3, 40.0, like=Session(name="", conversations=(main, aside)), policy=policy)
    assert found.sessions is not None
    assert found.sessions.ended > 3
    assert sorted(ended) == sorted({one.session for one in found.served})
