"""`Course`: a search, from the run of today's manifest to the findings."""

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

from msgspec.structs import replace

from pando.sim.errors import SimPlanError
from pando.sim.runs import Interrupted
from pando.tune.crew import Crew, Job
from pando.tune.display import Display
from pando.tune.finding import changes, contributions, policy_of, shown
from pando.tune.plan import TunePlan, TunePlanError
from pando.tune.runs import KnownRuns, key_of
from pando_operator.resource.parse import InvalidPool
from pando_sim.tuning.choice import (
    Point,
    bounds_of,
    front,
    in_order,
    most_missed,
    next_judged,
    next_ones,
    no_worse,
    preferred,
    recommended,
)
from pando_sim.tuning.findings import (
    DEFAULTS,
    TODAY,
    Contribution,
    Findings,
    TuneAbout,
)
from pando_sim.tuning.goal import WEEK_HOURS
from pando_sim.tuning.parts import Stage
from pando_sim.tuning.score import Score
from pando_sim.tuning.search import GENERATION, Search
from pando_sim.tuning.space import Candidate, Values
from pando_sim.tuning.variations import AS_RECORDED, VARIATIONS, Variation
from pando_sim.tuning.watch import NO_BOUNDS, Bounds

FULL = "always full"
"""The name of today's manifest with as many replicas as it may have, all the time."""

FINALISTS = 4  # played with variations; judged as long as none keeps what was asked for
MOST_JUDGED = 8  # of the front, if the part that judges is short


@dataclass(frozen=True, slots=True)
class Limits:
    trials: int
    minutes: float | None
    at_a_time: int  # runs
    varies: bool  # plays the best candidates with variations


class Course:
    """Call `go` once."""

    def __init__(
        self,
        plan: TunePlan,
        limits: Limits,
        crew: Crew,
        known: KnownRuns,
        display: Display,
        seed: int,
        about: TuneAbout,
    ) -> None:
        self._plan = plan
        self._limits = limits
        self._crew = crew
        self._known = known
        self._display = display
        self._about = about
        self._search = Search(plan.space, plan.goal, seed)
        self._allowed: dict[Stage, float] = {}  # to miss, if today's manifest says how many
        self._points: list[Point] = []
        self._only_tried: list[Point] = []  # on the shorter excerpt
        self._contributions: list[Contribution] = []
        self._best: Point | None = None
        self._runners_up: list[Point] = []  # that were judged after the best one
        self._trials = self._refused = 0

    def go(self) -> Findings:
        """Raises TunePlanError if no candidate can reach what is asked for, RunError if a run
        fails, Interrupted after a signal before anything was found."""
        interrupted = False
        try:
            self._begin()
            self._try_candidates()
            if self._plan.parts.has_excerpt:
                self._play_longer()
            self._settle()
            self._judge()
        except Interrupted:
            if not self._points:
                raise
            interrupted = True
        return self._findings(interrupted)

    # Steps

    def _begin(self) -> None:
        """Today's manifest, the defaults, and as many replicas as there may be."""
        plan = self._plan
        self._display.begins("today's manifest, the defaults, and all replicas all the time")
        space = plan.space
        made = [space.candidate(space.today), space.candidate(space.defaults), self._full()]
        outcomes = self._play([self._job(one) for one in made])
        names = (TODAY, DEFAULTS, FULL)
        self._points = [
            Point(name, one.values, outcome)
            for name, one, outcome in zip(names, made, outcomes, strict=True)
        ]
        self._check_reachable(made[2], outcomes[2])
        self._display.estimated(self._limits.trials, outcomes, self._limits.at_a_time, plan.parts)

    def _full(self) -> Candidate:
        document = deepcopy(self._plan.document)
        scaling = document["spec"]["scaling"]
        scaling["minReplicas"] = scaling["maxReplicas"]
        for name in ("budget", "idleSeconds", "schedules"):  # some of them could forbid that
            scaling.pop(name, None)
        space = self._plan.space.around(document)
        return space.candidate(space.today)

    def _check_reachable(self, candidate: Candidate, full: Score) -> None:
        goal, scaling = self._plan.goal, self._plan.planned.pool.spec.scaling
        if goal.budget is not None:
            least = self._plan.planned.pool.spec.tensor_parallel_size * WEEK_HOURS
            if scaling.min_replicas and goal.budget < least:
                raise TunePlanError(
                    f"--budget {goal.budget:g}: one replica all week costs {least:g} GPU-hours"
                )
            return
        if goal.as_today:
            return
        if not full.meets(goal) and self._plan.parts.has_excerpt:  # which may be harder
            full = self._play([self._job(candidate, name=FULL, stage=Stage.SEARCHED)])[0]
        if not full.meets(goal):
            raise TunePlanError(
                f"no number of replicas up to maxReplicas, {scaling.max_replicas}, reaches this:"
                f" with all of them all the time {full.late:.1%} of the requests have a first token"
                f" later than {goal.ttft_s:g} s, and {full.slow:.1%} more than {goal.gap_s:g} s"
                " between tokens; 1 % may"
            )

    def _try_candidates(self) -> None:
        started = time.monotonic()
        while self._trials < self._limits.trials:
            minutes = self._limits.minutes
            if minutes is not None and time.monotonic() - started > 60 * minutes:
                break
            self._generation(min(GENERATION, self._limits.trials - self._trials))
            self._display.tried(self._trials, self._limits.trials, self._ordered()[0], self._today)

    def _generation(self, size: int) -> None:
        asked = [self._search.ask() for _ in range(size)]
        bounds = bounds_of(self._candidates, self._today, self._plan.goal)
        jobs, made = [], []
        for values in asked:
            self._trials += 1
            try:
                candidate = self._plan.space.candidate(values)
                if (same := self._played_before(candidate)) is not None:
                    self._search.tell(values, same.searched)
                    continue
                jobs.append(self._job(candidate, bounds=bounds, name=f"candidate {self._trials}"))
                made.append((values, candidate))
            except (InvalidPool, SimPlanError):
                self._refused += 1
                self._search.tell(values, None)
        outcomes = self._play(jobs)
        for (values, candidate), job, outcome in zip(made, jobs, outcomes, strict=True):
            self._points.append(Point(job.name, candidate.values, outcome))
            self._search.tell(values, outcome)

    def _played_before(self, candidate: Candidate) -> Point | None:
        """An earlier one with the same values: today's manifest and the defaults are among the
        first that the search asks for."""
        return next((one for one in self._candidates if one.values == candidate.values), None)

    def _play_longer(self) -> None:
        """Plays today's manifest, the defaults and the best candidates on the longer excerpt. The
        first ones are played together: today's run could end some of them earlier, but while it is
        played alone all other processes are idle."""
        self._display.begins("the best candidates on a longer excerpt")
        tried = self._points
        candidates = [one for one in tried if one.name != FULL]
        lines = (candidates, self._simple(candidates))
        asked: tuple[set[str], ...] = (set(), set())  # names, of each line
        longer: list[Point] = []
        more, bounds = tried[:2], NO_BOUNDS
        while True:
            for line, names in zip(lines, asked, strict=True):
                played = [one for one in longer if one.name in names]
                new = next_ones(line, played, self._plan.goal)
                names.update(one.name for one in new)
                more += new
            if not more:
                break
            known = {one.name for one in longer}
            different = {one.name: one for one in more if one.name not in known}
            longer += self._longer(list(different.values()), bounds)
            more, bounds = [], Bounds(most_missed=most_missed(longer[0], self._plan.goal))
            # Now, as the search may be ended during the next runs.
            names = {one.name for one in longer}
            self._points = longer
            self._only_tried = [one for one in tried if one.name not in names]

    def _longer(self, points: Sequence[Point], bounds: Bounds) -> list[Point]:
        made = [self._plan.space.candidate(one.values) for one in points]
        jobs = [
            self._job(candidate, bounds=bounds, name=one.name, stage=Stage.SEARCHED)
            for one, candidate in zip(points, made, strict=True)
        ]
        outcomes = self._play(jobs)
        return [
            Point(one.name, one.values, outcome, tried=one.searched)
            for one, outcome in zip(points, outcomes, strict=True)
        ]

    def _settle(self) -> None:
        """Finds the recommended point, without fields that change nothing."""
        ordered = self._ordered()
        best = ordered[0]
        if self._limits.varies:
            self._display.begins("the best candidates with other arrivals, starts and a loss")
            self._vary([*self._compared, *ordered[:FINALISTS]])
            best = recommended(ordered[:FINALISTS], self._today)
        self._best = best
        if best is self._today:
            return
        self._display.begins("what each field contributes")
        without = self._without(best)
        tried, goal = best.tried or best.searched, self._plan.goal
        useless = [path for path, one in without.items() if no_worse(one, tried, goal)]
        if useless:
            values = best.values | {path: self._plan.space.today[path] for path in useless}
            simple = self._played(values, f"{best.name}, simplified")
            if simple is not None and no_worse(simple.searched, best.searched, goal):
                if self._limits.varies:
                    self._vary([simple])
                if recommended([simple, best], self._today) is simple:
                    self._points.append(simple)
                    self._best = best = simple
                    tried = best.tried or best.searched
                    without = self._without(best)
        self._contributions = contributions(self._plan.space, best.values, tried, without)

    def _judge(self) -> None:
        self._display.begins("the best candidates on the other part of the trace")
        assert self._best is not None, "it was settled"
        goal = self._plan.goal
        chosen = [self._best, *self._compared]
        if not self._plan.parts.has_excerpt:
            chosen += front(self._candidates)[-MOST_JUDGED:]
        self._judge_all(list({one.name: one for one in chosen}.values()))
        finalists = self._ordered()[:FINALISTS]
        while (
            one := next_judged(finalists, self._best, self._rivals, self._today, goal)
        ) is not None:
            self._judge_all([one])
            self._runners_up.append(one)

    def _judge_all(self, points: Sequence[Point]) -> None:
        jobs = []
        for point in points:
            candidate = self._plan.space.candidate(point.values)
            jobs.append(self._job(candidate, name=point.name, stage=Stage.JUDGED))
        for point, outcome in zip(points, self._play(jobs), strict=True):
            point.judged = outcome

    # Runs

    def _without(self, best: Point) -> dict[str, Score]:
        """Scores of the point with each changed field as it is today, by path."""
        space, paths, jobs = self._plan.space, [], []
        for path in space.changed(best.values):
            try:
                candidate = space.candidate(best.values | {path: space.today[path]})
            except InvalidPool:
                continue  # another field of it needs this one
            paths.append(path)
            jobs.append(self._job(candidate, name=f"without {path}"))
        return dict(zip(paths, self._play(jobs), strict=True))

    def _played(self, values: Values, name: str) -> Point | None:
        try:
            candidate = self._plan.space.candidate(values)
        except InvalidPool:
            return None
        if not self._plan.parts.has_excerpt:
            return Point(name, candidate.values, self._play([self._job(candidate, name=name)])[0])
        stages = (Stage.TRIED, Stage.SEARCHED)
        jobs = [self._job(candidate, name=name, stage=stage) for stage in stages]
        tried, searched = self._play(jobs)
        return Point(name, candidate.values, searched, tried=tried)

    def _vary(self, points: Sequence[Point]) -> None:
        new = {point.name: point for point in points if not point.varied}
        todo = [(point, one) for point in new.values() for one in VARIATIONS]
        jobs = [
            self._job(
                self._plan.space.candidate(point.values),
                name=point.name,
                variation=one,
                stage=Stage.SEARCHED,
            )
            for point, one in todo
        ]
        for (point, variation), outcome in zip(todo, self._play(jobs), strict=True):
            point.varied[variation.name] = outcome

    def _job(
        self,
        candidate: Candidate,
        *,
        bounds: Bounds = NO_BOUNDS,
        name: str = "",
        stage: Stage = Stage.TRIED,
        variation: Variation = AS_RECORDED,
    ) -> Job:
        return Job(
            name=name,
            spec=self._plan.fleet(candidate),
            pool=candidate.pool,
            stage=stage,
            variation=variation,
            bounds=bounds,
        )

    def _play(self, jobs: Sequence[Job]) -> list[Score]:
        """The outcomes in order. Equal runs, such as those of a manifest that is the defaults, are
        made once, and those that are known not again."""
        different = {key_of(job): job for job in jobs}
        todo = [job for job in different.values() if job not in self._known]

        def done(place: int, outcome: Score) -> None:
            self._known.add(todo[place], outcome)
            self._display.ran()

        self._crew.run(todo, done)
        return [self._scored(job) for job in jobs]

    def _scored(self, job: Job) -> Score:
        """The run's score, with what is allowed if today's manifest says it, which is among the
        first that are played at each stage. Variations are compared by their misses alone."""
        score = self._known[job]
        if not self._plan.goal.as_today or job.variation is not AS_RECORDED:
            return score
        if job.stage not in self._allowed:
            space = self._plan.space
            today = self._job(space.candidate(space.today), stage=job.stage)
            self._allowed[job.stage] = self._known[today].missed
        return replace(score, allowed=self._allowed[job.stage])

    # What was found

    @property
    def _today(self) -> Point:
        return self._points[0]

    @property
    def _defaults(self) -> Point:
        return self._points[1]

    def _simple(self, points: Sequence[Point]) -> list[Point]:
        """Those that change at most one field of the defaults."""
        plain = self._plan.space.defaults.items()
        return [one for one in points if len(one.values.items() - plain) <= 1]

    @property
    def _compared(self) -> list[Point]:
        """What the best one must not be worse than, on the part that judges."""
        simple = in_order(self._simple(self._candidates), self._plan.goal)[:1]
        return [self._today, self._defaults, *simple]

    @property
    def _rivals(self) -> list[Point]:
        """What the part that judges may prefer to the best one."""
        return [*self._compared, *self._runners_up]

    @property
    def _candidates(self) -> list[Point]:
        return [one for one in self._points if one.name != FULL]

    def _ordered(self) -> list[Point]:
        return in_order(self._candidates, self._plan.goal)

    def _findings(self, interrupted: bool) -> Findings:
        best = self._best or self._ordered()[0]
        chosen = preferred(best, self._rivals, self._today, self._plan.goal)
        return Findings(
            about=self._about,
            trials=self._trials,
            lost=sum(not (one.tried or one.searched).is_whole for one in self._every),
            refused=self._refused,
            interrupted=interrupted,
            points=shown(self._every, front(self._candidates), self._plan),
            recommended=chosen.name,
            is_kept_today=chosen is self._today and chosen is not best,
            passed_over=None if chosen is best else best.name,
            contributions=self._contributions if chosen is best else [],
            importances=self._search.importances(),
            policy=policy_of(chosen, self._plan),
            **changes(chosen, self._plan),
        )

    @property
    def _every(self) -> list[Point]:
        return [*self._points, *self._only_tried]
