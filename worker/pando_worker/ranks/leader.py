"""Rank 0's side of tensor parallelism: starts the other ranks, and sends them every batch."""

import logging
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from pando_worker.batch import ForwardBatch, ModelRunner, Step
from pando_worker.models.errors import ModelError
from pando_worker.ranks.adapter_load import AdapterLoad
from pando_worker.ranks.follower import batch_endpoint, run_follower
from pando_worker.ranks.page_tables import without_tables
from pando_worker.settings import WorkerSettings

if TYPE_CHECKING:  # torch takes seconds to import, and this process starts other ranks first
    from pando_worker.models.lora.linear import PackedAdapter

log = logging.getLogger("pando.worker.ranks")

# A dying process closes its pipe before its exit code is available; under load this takes a while.
EXIT_CODE_S = 10
DEATH_S = 2  # from a failed collective to the end of the process that caused the failure


class LeadingRunner:
    """A `ModelRunner` around rank 0's own that sends each batch to the other ranks as well."""

    def __init__(self, runner: ModelRunner, followers: list[zmq.Socket[bytes]]) -> None:
        self._runner = runner
        self._followers = followers
        self._sending = threading.Lock()  # batches and adapters come from different threads

    def launch(self, batch: ForwardBatch) -> Step:
        data = pickle.dumps(without_tables(batch), protocol=5)
        with self._sending:
            for follower in self._followers:
                follower.send(data)
        return self._runner.launch(batch)

    def send_adapter(
        self, slot: int, pages: Sequence[int], shares: "Sequence[PackedAdapter]"
    ) -> None:
        """Send each of the other ranks its share of an adapter."""
        with self._sending:
            for follower, share in zip(self._followers, shares, strict=True):
                load = AdapterLoad(slot, tuple(pages), share.sections)
                follower.send_multipart([pickle.dumps(load), share.numbers], copy=False)


@contextmanager
def followers(
    settings: WorkerSettings, directory: Path, configure_logging: Callable[[], None]
) -> Iterator[list[zmq.Socket[bytes]]]:
    """Run the ranks from 1 on as processes for the duration of the block; yields the sockets for
    their batches. If one of them dies, this process ends and logs which one."""
    context = zmq.Context()
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(
            target=run_follower,
            args=(settings, rank, directory, configure_logging),
            name=f"pando-rank-{rank}",
        )
        for rank in range(1, settings.tensor_parallel_size)
    ]
    ending = threading.Event()
    try:
        for process in processes:
            process.start()
        watcher = threading.Thread(target=_end_with_any, args=(processes, ending), daemon=True)
        watcher.start()
        ranks = range(1, settings.tensor_parallel_size)
        try:
            yield [_connect(context, batch_endpoint(directory, rank)) for rank in ranks]
        except ModelError:
            raise
        except Exception:
            # A collective may fail before the dead rank is noticed; wait, so that the log names it.
            watcher.join(DEATH_S)
            raise
    finally:
        ending.set()
        for process in processes:
            process.kill()
            process.join()
        context.destroy(linger=0)


def _connect(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PUSH)
    socket.connect(endpoint)
    return socket


def _end_with_any(processes: list[SpawnProcess], ending: threading.Event) -> None:
    """End this process with any other rank: the rest cannot continue and may wait forever."""
    if not processes:
        return
    ended = wait([process.sentinel for process in processes])
    if ending.is_set():
        return
    for rank, process in enumerate(processes, start=1):
        if process.sentinel in ended:
            process.join(EXIT_CODE_S)
            log.error(
                "tensor-parallel rank %d ended (exit code %s): this worker ends with it",
                rank,
                process.exitcode,
            )
    os._exit(1)
