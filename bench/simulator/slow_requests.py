"""Why the slowest requests of a simulation were slow, and where cached tokens were missed.

Run: python -m bench.simulator.slow_requests TRACE. Pando's placement (`cache_aware`) places the
requests, and each is compared with the terms of all replicas at that moment.

First come the tokens that were computed again, by reason: another replica held them; the tree in
Redis promised them, but the worker had evicted them; or, known for agents' sessions only, an
earlier prompt began with them, and no replica held them any more. Then come the slowest requests,
of sessions the slowest later calls, with the terms of the chosen replica, of the one that held the
most of the prompt, and of the one with the shortest wait.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import ValidationError

from pando.sim.errors import SimPlanError
from pando.sim.plan import Task, make_plan
from pando_fleet.redis.layout.rows import Candidate
from pando_router.core.route import Route, Shortage
from pando_sim.cost import load
from pando_sim.fleet.routing.context import Context
from pando_sim.fleet.routing.interfaces import Question
from pando_sim.fleet.routing.shared_placement import SharedPlacement
from pando_sim.fleet.simulate import simulate
from pando_sim.records import Outcome, Served
from pando_sim.settings import SimSettings
from pando_sim.spec import RouterSpec

TERMS = ("wait_s", "kv_wait_s", "work_s", "pool_s", "evict_s")


class Watching:
    """The shared placement, which notes all candidates of each request's last placement."""

    def __init__(
        self, context: Context, spec: RouterSpec, seen: dict[int, tuple[Candidate, ...]]
    ) -> None:
        self._placement = SharedPlacement(context, spec, every=True)
        self._seen = seen

    async def place(self, question: Question) -> Route | Shortage:
        route = await self._placement.place(question)
        if isinstance(route, Route) and route.placement:
            self._seen[question.request.number] = route.placement.candidates
        return route

    def close(self) -> None:
        self._placement.close()


@dataclass(frozen=True, slots=True)
class Placed:
    """A finished request, and the candidates of its placement."""

    served: Served
    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> Candidate:
        return next(one for one in self.candidates if one.replica == self.served.replica)

    @property
    def holder(self) -> Candidate:
        """The one with the most of the prompt; of equal ones the chosen."""
        return max(self.candidates, key=lambda one: (one.matched_tokens, one is self.chosen))

    @property
    def idlest(self) -> Candidate:
        """The one with the shortest wait; of equal ones the chosen."""
        return min(self.candidates, key=lambda one: (one.wait_s, one is not self.chosen))

    @property
    def left_behind(self) -> int:
        """Tokens that another replica held, and the chosen one did not."""
        return max(0, self.holder.matched_tokens - self.chosen.matched_tokens)

    @property
    def not_there(self) -> int:
        """Tokens that the tree promised, and the worker did not have."""
        return max(0, self.chosen.matched_tokens - self.served.cached_tokens)

    @property
    def evicted(self) -> int:
        """Tokens of the session's last prompts that no tree had any more, and no worker found."""
        known = max(self.holder.matched_tokens, self.served.cached_tokens)
        return max(0, self.served.repeated_tokens - known)


REASONS: dict[str, Callable[[Placed], int]] = {
    "another replica held them": lambda one: one.left_behind,
    "the tree promised them, the worker had evicted them": lambda one: one.not_there,
    "no replica held them any more": lambda one: one.evicted,
}


def watched(task: Task) -> list[Placed]:
    """The finished requests of a run that Redis placed."""
    seen: dict[int, tuple[Candidate, ...]] = {}
    spec = task.spec
    run = asyncio.run(
        simulate(
            spec,
            task.requests,
            cost=load(spec.worker.cost_model),
            policy=lambda context: Watching(context, spec.router, seen),
        )
    )
    finished = (one for one in run.served if one.outcome is Outcome.FINISHED)
    return [Placed(one, seen[one.number]) for one in finished if one.number in seen]


def table(placed: Sequence[Placed]) -> Iterator[str]:
    """What was missed, by reason."""
    prompts = sum(one.served.prompt_tokens for one in placed)
    found = sum(one.served.cached_tokens for one in placed)
    yield f"{len(placed):,} requests with {prompts:,} prompt tokens, {found:,} of them found"
    yield ""
    yield "| not found, because | requests | tokens |"
    yield "|---|---:|---:|"
    for reason, missed in REASONS.items():
        lost = [missed(one) for one in placed if missed(one)]
        yield f"| {reason} | {len(lost):,} | {sum(lost):,} |"


def story(one: Placed) -> Iterator[str]:
    """A request, and the terms of the replicas that matter."""
    served = one.served
    yield (
        f"{served.number} at {served.arrival_s:.1f} s: first token after {served.ttft_s:.2f} s,"
        f" {served.placed_s - served.arrival_s:.2f} s of it in the router;"
        f" {served.cached_tokens:,} of {served.prompt_tokens:,} tokens found"
    )
    roles = {"chosen": one.chosen, "holder": one.holder, "idlest": one.idlest}
    for role, candidate in roles.items():
        if role == "chosen" or candidate is not one.chosen:
            terms = " ".join(f"{term} {getattr(candidate, term):.2f}" for term in TERMS)
            yield (
                f"    {role} {candidate.replica}: cost_s {candidate.cost_s:.2f} {terms}"
                f" queue {candidate.queue:.0f} coming {candidate.coming:.2f}"
                f" matched_tokens {candidate.matched_tokens:,}"
            )


@click.command(help=__doc__)
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=click.IntRange(1), default=8, show_default=True)
@click.option("--capacity-tokens", type=click.IntRange(1), default=480_000, show_default=True)
@click.option("--routers", type=click.IntRange(1), default=1, show_default=True)
@click.option("--take", type=click.IntRange(1), help="only the first so many requests")
@click.option("--speed", type=click.FloatRange(0, min_open=True), default=1, show_default=True)
@click.option("--sessions", type=click.IntRange(1), help="agents' sessions at once")
@click.option(
    "--hours",
    type=click.FloatRange(0, min_open=True),
    default=0.5,
    show_default=True,
    help="of sessions",
)
@click.option("--context-length", type=click.IntRange(1), help="longer calls are refused")
@click.option("--slowest", type=click.IntRange(1), default=10, show_default=True)
def main(
    trace: Path,
    replicas: int,
    capacity_tokens: int,
    routers: int,
    take: int | None,
    speed: float,
    sessions: int | None,
    hours: float,
    context_length: int | None,
    slowest: int,
) -> None:
    try:
        settings = SimSettings(
            trace=(str(trace),),
            policy=("cache_aware",),
            replicas=replicas,
            capacity_tokens=capacity_tokens,
            routers=routers,
            take=take,
            speed=speed,
            sessions=sessions,
            session_hours=hours,
            context_length=context_length,
            csv=False,
        )
        (task,) = make_plan(settings).tasks
    except (ValidationError, SimPlanError) as error:
        raise click.UsageError(str(error)) from error
    placed = watched(task)
    for line in table(placed):
        click.echo(line)
    later = [one for one in placed if one.served.turn != 0]
    for one in sorted(later, key=lambda one: -one.served.ttft_s)[:slowest]:
        click.echo()
        for line in story(one):
            click.echo(line)


if __name__ == "__main__":
    main()
