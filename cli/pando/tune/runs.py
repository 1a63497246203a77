"""`KnownRuns`: the scores of runs, in a file, so that a search that goes on makes none twice.

A search asks for the same runs in the same order each time, so going on is doing it again with
what is known.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from pando.tune.crew import Job
from pando_sim.tuning.score import Score

FILE = "runs.jsonl"


class KnownRunsError(Exception):
    """The file is of another search, or cannot be used; the message is one line."""


class _Line(msgspec.Struct, frozen=True):
    key: str
    outcome: Score


class KnownRuns:
    """Scores by what was run."""

    def __init__(self, path: Path, search: str, *, resume: bool) -> None:
        """
        Args:
            search: names everything that all runs have in common.

        Raises KnownRunsError.
        """
        self._path = path
        self._known: dict[str, Score] = {}
        first = msgspec.json.encode({"search": _hash(search)})
        if resume and path.exists():
            head, *lines = path.read_bytes().splitlines() or [b""]
            if head != first:
                raise KnownRunsError(
                    f"{path} is of another search: --resume wants the same trace, pool and"
                    " settings; another number of --trials is right"
                )
            for text in lines:
                try:
                    line = msgspec.json.decode(text, type=_Line)
                except msgspec.MsgspecError:
                    continue  # the command was killed while it wrote the last one
                self._known[line.key] = line.outcome
        elif resume:
            raise KnownRunsError(f"there is no {path}: nothing to go on with")
        else:
            path.write_bytes(first + b"\n")

    def __contains__(self, job: Job) -> bool:
        return key_of(job) in self._known

    def __getitem__(self, job: Job) -> Score:
        return self._known[key_of(job)]

    def add(self, job: Job, outcome: Score) -> None:
        key = key_of(job)
        self._known[key] = outcome
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(_Line(key, outcome)) + b"\n")


def key_of(job: Job) -> str:
    """Equal for runs that have the same score."""
    pool = job.pool.spec.model_dump_json(by_alias=True)
    what: list[Any] = [pool, job.spec, job.stage, job.variation, job.bounds]
    return _hash(repr(what))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
