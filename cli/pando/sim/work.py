"""One run in its own process. It sends `Progress` through its pipe at times, and at the end a
`Digest` or `Failed`."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from pando.sim.faults import parse_fault
from pando.sim.plan import Task
from pando.sim.processes import lead_group
from pando_sim.cost import load
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.report import Digest, digest, write_requests, write_samples
from pando_sim.scaling import SCALERS
from pando_sim.settings import NO_SCALING

logger = logging.getLogger("pando.sim")


@dataclass(frozen=True, slots=True)
class Progress:
    ended: int  # requests
    at_s: float  # virtual


@dataclass(frozen=True, slots=True)
class Failed:
    """The message is one line."""

    why: str


Message = Progress | Digest | Failed


def work(
    task: Task, sender: "Connection[Message, None]", configure_logs: Callable[[], None]
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
        result = asyncio.run(run(task, lambda ended, at_s: sender.send(Progress(ended, at_s))))
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
    sender.send(result)


async def run(task: Task, progress: Callable[[int, float], None] | None = None) -> Digest:
    """Simulates the task, calls `progress` at times, and writes the CSV files if wanted."""
    spec = task.spec
    ran = await simulate(
        spec,
        task.requests,
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
