"""One run, in a process of its own. What it tells through its pipe: `Progress` now and then, and
at the end a `Digest` or `Failed`."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from pando.sim.faults import parse_fault
from pando.sim.plan import Task
from pando_sim.cost import load
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.report import Digest, digest, write_requests, write_samples
from pando_sim.scaling import SCALERS
from pando_sim.settings import NO_SCALING
from pando_sim.traces import shaped

logger = logging.getLogger("pando.sim")


@dataclass(frozen=True, slots=True)
class Progress:
    ended: int  # requests
    at_s: float  # virtual


@dataclass(frozen=True, slots=True)
class Failed:
    """The message is one line."""

    why: str


Told = Progress | Digest | Failed


def work(task: Task, told: "Connection[Told, None]", configure_logs: Callable[[], None]) -> None:
    """Entry of the process. It leads a group of its own, which a terminal's Ctrl-C does not reach;
    its parent ends it by SIGTERM, and it ends by itself when its parent is gone. A guard ends the
    run's Valkey, however the process ends."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    configure_logs()
    gc.freeze()  # what is loaded by now stays: collections need not look at it
    try:
        result = asyncio.run(run(task, lambda ended, at_s: told.send(Progress(ended, at_s))))
    except BrokenPipeError:  # nobody is there any more to hear of it
        sys.exit(1)
    except Exception as error:
        logger.debug("run %s", task.name, exc_info=True)
        told.send(Failed(" ".join(f"{type(error).__name__}: {error}".split())))
        sys.exit(1)
    told.send(result)


async def run(task: Task, progress: Callable[[int, float], None] | None = None) -> Digest:
    """Reports `Progress` to `progress` and writes the CSV files that the task asks for."""
    spec = task.spec
    ran = await simulate(
        spec,
        shaped(task.trace, task.shape),
        cost=load(spec.worker.cost_model),
        policy=POLICIES[spec.policy].factory(spec),
        scaler=SCALERS[spec.scaling].make(spec, task.pool) if spec.scaling != NO_SCALING else None,
        faults=[parse_fault(text) for text in task.faults],
        progress=progress,
    )
    if task.csv is not None:
        write_requests(task.csv / f"{task.name}.requests.csv", ran)
        write_samples(task.csv / f"{task.name}.samples.csv", ran)
    return digest(
        ran,
        slow_ttft_s=spec.slow_ttft_s,
        slow_gap_s=spec.slow_gap_s,
        gpus_per_replica=task.pool.spec.tensor_parallel_size,
    )
