"""Tries a sample of mutants of each target, and exits 1 if too many survive.

Run: python -m tests.mutation, or make test-mutations. The same seed draws the same sample from the
same sources. A surviving mutant needs a test for the behaviour that it breaks; one that changes no
behaviour belongs in equivalent.toml, with the reason.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue

import click

from tests.mutation import equivalent
from tests.mutation.equivalent import Change
from tests.mutation.mutant import Mutant, sample
from tests.mutation.targets import TARGETS, Target
from tests.mutation.trial import Copy, TestsFailedError, copied

SHARE = 0.95  # that must be killed


@dataclass(frozen=True, slots=True)
class Tried:
    target: Target
    mutants: int
    equivalent: int
    survivors: Sequence[str]
    not_tried: int  # for want of time, or as the tests fail anyway
    seconds: float

    @property
    def killed(self) -> int:
        return self.mutants - self.equivalent - len(self.survivors)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A target, its source, and the mutants to try."""

    target: Target
    source: bytes
    mutants: Sequence[Mutant]

    def told(self, mutant: Mutant) -> str:
        number, was, becomes = mutant.lines(self.source)
        return f"{mutant.file}:{number} ({mutant.kind})\n  - {was}\n  + {becomes}"

    def tried(self, copy: Copy, known: set[Change], deadline: float) -> Tried:
        begun = time.monotonic()
        tried = left_alone = 0
        survivors: list[str] = []
        try:
            usual_s = copy.seconds(self.target.tests)
        except TestsFailedError as error:
            click.echo(f"{self.target.file}: {error}", err=True)
            return Tried(self.target, 0, 0, (), len(self.mutants), time.monotonic() - begun)
        for mutant in self.mutants:
            if time.monotonic() > deadline:
                break
            tried += 1
            if equivalent.change(mutant, self.source) in known:
                left_alone += 1
                continue
            killer = copy.killer(mutant, self.target.tests, usual_s)
            if killer is None:
                survivors.append(self.told(mutant))
            click.echo(f"{self.told(mutant)}\n  {killer or 'survived'}", err=True)
        late = len(self.mutants) - tried
        seconds = time.monotonic() - begun
        return Tried(self.target, tried, left_alone, survivors, late, seconds)


def drawn(target: Target, copy: Copy, each: int, seed: str, known: set[Change]) -> Drawn:
    """Raises click.ClickException if `known` has a change that no mutant of this file makes."""
    source = (copy.root / target.file).read_bytes()
    mutants = list(target.mutants(source))
    possible = {equivalent.change(mutant, source) for mutant in mutants}
    of_file = [one for one in known if one.file == target.file]
    if gone := equivalent.stale(of_file, possible):
        raise click.ClickException(
            f"equivalent.toml: no mutant of {target.file} makes {gone[0].becomes!r} of"
            f" {gone[0].was!r}: mend or remove the entry"
        )
    return Drawn(target, source, sample(mutants, each, f"{seed} {target.file}"))


def sheet(all_tried: Sequence[Tried]) -> str:
    rows = [
        "| file | mutants | killed | equivalent | survived | seconds |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| `{one.target.file}` | {one.mutants} | {one.killed} | {one.equivalent}"
        f" | {len(one.survivors)} | {one.seconds:.0f} |"
        for one in all_tried
    ]
    return "\n".join(rows)


@click.command(help=__doc__)
@click.option("--each", type=click.IntRange(1), default=5, show_default=True, help="mutants a file")
@click.option("--seed", default="pando", show_default=True, help="draws the sample")
@click.option("--only", default="", help="files with this in their path")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=40.0,
    show_default=True,
    help="no mutant is begun later",
)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="at once")
@click.option("--list", "listing", is_flag=True, help="show the sample and run nothing")
def main(each: int, seed: str, only: str, minutes: float, jobs: int, listing: bool) -> None:
    targets = [target for target in TARGETS if only in target.file]
    if not targets:
        raise click.UsageError(f"no file has {only!r} in its path; see tests/mutation/targets.py")
    known, files = equivalent.read(), {target.file for target in TARGETS}
    if strangers := sorted({one.file for one in known} - files):
        raise click.ClickException(f"equivalent.toml: {strangers[0]} is no target")
    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        first = stack.enter_context(copied())
        samples = [drawn(target, first, each, seed, known) for target in targets]
        if listing:
            for one in samples:
                click.echo("\n".join(map(one.told, one.mutants)))
            return
        for copy in (first, *(stack.enter_context(copied(first)) for _ in range(1, jobs))):
            copies.put(copy)
        deadline = time.monotonic() + minutes * 60

        def tried(one: Drawn) -> Tried:
            copy = copies.get()
            try:
                return one.tried(copy, known, deadline)
            finally:
                copies.put(copy)

        all_tried = list(pool.map(tried, samples))
    click.echo(sheet(all_tried))
    killed = sum(one.killed for one in all_tried)
    judged = sum(one.mutants - one.equivalent for one in all_tried)
    late = sum(one.not_tried for one in all_tried)
    click.echo(f"\n{killed} of {judged} killed; {late} not tried")
    for survivor in (line for one in all_tried for line in one.survivors):
        click.echo(survivor)
    if late or killed < SHARE * judged:
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main()
