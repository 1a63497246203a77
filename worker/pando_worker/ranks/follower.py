"""A tensor-parallel rank other than 0: runs every batch that rank 0 sends.

Scheduling, sampling and everything random happen only on rank 0, so ranks cannot disagree. Rank 0
sends the same `ForwardBatch` to all; they synchronise in the model's collectives, and rank 0
broadcasts its sampled tokens by one more.
"""

import logging
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from pando_fleet.free_memory import keep_freed_memory
from pando_worker.batch import ForwardBatch, ModelRunner
from pando_worker.models.errors import ModelError
from pando_worker.parent import end_with_parent
from pando_worker.ranks.adapter_load import AdapterLoad, Frame
from pando_worker.ranks.page_tables import RankPageTables
from pando_worker.settings import WorkerSettings
from pando_worker.stacks import dump_stacks_on_signal

if TYPE_CHECKING:  # torch takes seconds to import
    from pando_worker.models.lora.linear import LoraMemory

log = logging.getLogger("pando.worker.ranks")


def batch_endpoint(directory: Path, rank: int) -> str:
    return f"ipc://{directory}/rank-{rank}"


def run_follower(
    settings: WorkerSettings, rank: int, directory: Path, configure_logging: Callable[[], None]
) -> None:
    """Process entry: runs until rank 0's process, its parent, ends or kills it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    configure_logging()
    if settings.device == "cpu":
        keep_freed_memory()
    end_with_parent()  # a collective that waits for a dead rank may never return
    dump_stacks_on_signal(directory, f"rank-{rank}")
    context = zmq.Context()
    batches = context.socket(zmq.PULL)
    try:
        batches.bind(batch_endpoint(directory, rank))
        # Imported late: rank 0 imports this file as well, before it needs torch.
        from pando_worker.ranks.group import join
        from pando_worker.runner.model_runner import TorchModelRunner

        runner = TorchModelRunner(settings, join(settings, rank, directory))
        tables = RankPageTables(
            settings.max_running_requests, runner.context_length, settings.page_size
        )
        follow(runner, runner.lora, tables, _received(batches))
    except ModelError as error:
        log.error("rank %d cannot serve this model: %s", rank, error)
    except Exception:
        log.exception("rank %d failed", rank)
    sys.exit(1)


def follow(
    runner: ModelRunner,
    memory: "LoraMemory | None",
    tables: RankPageTables,
    messages: Iterable[Sequence[Frame]],
) -> None:
    """Run what rank 0 sends, as long as there are messages.

    Args:
        memory: of adapters; None if there are none
        tables: of no pages yet
        messages: in their parts
    """
    from pando_worker.ranks.adapters import ReceivedAdapters

    adapters = None if memory is None else ReceivedAdapters(memory)
    for first, *numbers in messages:
        message: ForwardBatch | AdapterLoad = pickle.loads(first.buffer)
        if isinstance(message, AdapterLoad):
            assert adapters is not None
            adapters.receive(message, *numbers)
            continue
        if adapters is not None:
            adapters.before(message)
        tables.complete(message)
        runner.launch(message).sample(None)


def _received(socket: zmq.Socket[bytes]) -> Iterator[list[zmq.Frame]]:
    while True:
        yield socket.recv_multipart(copy=False)
