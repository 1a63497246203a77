"""How the ranks of one worker meet."""

import os
from datetime import timedelta
from pathlib import Path

from pando_worker.cuda.device import find_device
from pando_worker.models.parallel import ParallelGroup, join_group
from pando_worker.settings import WorkerSettings

# Of the slowest thing that ranks wait for each other in: the loading of weights.
TIMEOUT = timedelta(minutes=30)


def join(settings: WorkerSettings, rank: int, directory: Path) -> ParallelGroup:
    """Meet the other ranks of this worker, which all run on this machine.

    Args:
        directory: private to the worker; all its ranks are given the same one.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    device = find_device(settings.device, rank, settings.tensor_parallel_size)
    meeting_point = f"file://{directory}/meeting-point"
    return join_group(rank, settings.tensor_parallel_size, meeting_point, device, TIMEOUT)
