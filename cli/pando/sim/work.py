"""One run in its own process. It sends `Progress` through its pipe at times, and at the end `Ended`
or `Failed`."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

from pando.sim.faults import parse_fault
from pando.sim.plan import Task
from pando.sim.processes import lead_group
from pando_sim.cost import load
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.records import Run
from pando_sim.report import Digest, digest, write_requests, write_samples
from pando_sim.scaling import SCALERS
from pando_sim.scaling.scaler import scaler_of
from pando_sim.settings import NO_SCALING

R = TypeVar("R")

logger = logging.getLogger("pando.sim")


@dataclass(frozen=True, slots=True)
class Progress:
    ended: int  # requests
    at_s: float  # virtual


@dataclass(frozen=True, slots=True)
class Failed:
    """The message is one line."""

    why: str


@dataclass(frozen=True, slots=True)
class Ended(Generic[R]):
    result: R


Summary = Callable[[Task, Run], R]
"""Makes the result of a run; a function of a module, or a `partial` of one, so that it can be sent
to a process."""


def work(
    task: Task,
    sender: "Connection[Progress | Ended[R] | Failed, None]",
    summary: Summary[R],
    configure_logs: Callable[[], None],
) -> None:
    """Entry point of the process.

    It leads its own process group, which a terminal's Ctrl-C does not reach. Its parent ends it by
    SIGTERM; it ends by itself when its parent has gone. A guard ends the run's Valkey, however the
    process ends.
    """
    lead_group()
    configure_logs()
    gc.freeze()  # modules loaded by now stay, so collections need not scan them
    try:
        ran = asyncio.run(run(task, lambda ended, at_s: sender.send(Progress(ended, at_s))))
        result = summary(task, ran)
    except BrokenPipeError:  # the parent has gone
        sys.exit(1)
    except OSError as error:  # such as a full disk
        where = f": {Path(error.filename).name}" if error.filename else ""
        sender.send(Failed(f"{error.strerror or error}{where}"))
        sys.exit(1)
    except Exception as error:
        logger.debug("run %s", task.name, exc_info=True)
        sender.send(Failed(" ".join(f"{type(error).__name__}: {error}".split())))
        sys.exit(1)
    sender.send(Ended(result))


async def run(task: Task, progress: Callable[[int, float], None] | None = None) -> Run:
    """Simulates the task, and calls `progress` at times."""
    spec = task.spec
    return await simulate(
        spec,
        task.requests,
        cost=load(spec.worker.cost_model),
        policy=POLICIES[spec.policy].factory(spec),
        scaler=scaler_of(SCALERS[spec.scaling], spec, task.pool)
        if spec.scaling != NO_SCALING
        else None,
        faults=[parse_fault(text) for text in task.faults],
        progress=progress,
    )


def digested(task: Task, ran: Run) -> Digest:
    """The run for the report; writes its CSV files if wanted."""
    if task.csv is not None:
        write_requests(task.csv / f"{task.name}.requests.csv", ran)
        write_samples(task.csv / f"{task.name}.samples.csv", ran)
    return digest(
        ran,
        slow_ttft_s=task.spec.slow_ttft_s,
        slow_gap_s=task.spec.slow_gap_s,
        gpus_per_replica=task.pool.spec.tensor_parallel_size,
    )
