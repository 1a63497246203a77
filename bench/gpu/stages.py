"""Programs that run one after another, whatever fails, and the page about them."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.gpu.report import Report, markdown

SHOWN_LINES = 30  # of a program that failed


@dataclass(frozen=True, slots=True)
class Stage:
    """
    Attributes:
        report: file that the program writes its `Report` to; None if it only ends with 0 or not
    """

    name: str
    command: Sequence[str]
    limit_s: float
    report: Path | None = None


class Outcome(msgspec.Struct, frozen=True):
    name: str
    failure: str | None  # None: it ended with 0
    seconds: float
    output: str
    report: Report | None = None


def run(stage: Stage, cwd: Path) -> Outcome:
    """In a process of its own, as an error of CUDA ends all later work of its process."""
    started, failure = time.monotonic(), None
    with subprocess.Popen(
        stage.command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=stage.limit_s)
            if process.returncode:
                failure = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            _kill(process)
            output, _ = process.communicate()
            failure = f"ran longer than {stage.limit_s:.0f} s"
        except KeyboardInterrupt:  # which a session of its own does not get
            _kill(process)
            raise
    report = None
    if stage.report is not None and stage.report.exists():
        report = msgspec.json.decode(stage.report.read_bytes(), type=Report)
    return Outcome(stage.name, failure, time.monotonic() - started, output, report)


def _kill(process: subprocess.Popen[str]) -> None:
    """With its children, which hold memory of the GPU and the other end of its output."""
    os.killpg(process.pid, signal.SIGKILL)


def page(outcomes: Sequence[Outcome]) -> str:
    """What failed comes first."""
    failed = [outcome for outcome in outcomes if outcome.failure is not None]
    lines = ["# A run on a GPU", ""]
    for outcome in failed:
        tail = "\n".join(outcome.output.splitlines()[-SHOWN_LINES:])
        lines += [f"## Failed: {outcome.name}, {outcome.failure}", "", "```", tail, "```", ""]
    lines += ["| program | result | seconds |", "|---|---|---|"]
    for outcome in outcomes:
        last = next(iter(outcome.output.splitlines()[-1:]), "")
        result = outcome.failure or ("done" if outcome.report else last.strip("= ") or "done")
        lines.append(f"| {outcome.name} | {result} | {outcome.seconds:.0f} |")
    for outcome in outcomes:
        if outcome.report is not None:
            lines += ["", markdown(outcome.report).replace("### ", "## ", 1)]
    return "\n".join(lines) + "\n"
