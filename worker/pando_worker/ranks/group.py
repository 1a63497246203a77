"""How the ranks of one worker join their process group."""

import os
from datetime import timedelta
from pathlib import Path

from pando_worker.cuda.device import find_device
from pando_worker.models.parallel import ParallelGroup, join_group
from pando_worker.settings import WorkerSettings

# Long enough for the slowest thing that ranks wait for each other in: loading weights.
TIMEOUT = timedelta(minutes=30)


def join(settings: WorkerSettings, rank: int, directory: Path) -> ParallelGroup:
    """Join the process group of this worker's ranks, which all run on this machine.

    Args:
        directory: private to the worker; the same for all its ranks.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    device = find_device(settings.device, rank, settings.tensor_parallel_size)
    meeting_point = f"file://{directory}/meeting-point"
    return join_group(rank, settings.tensor_parallel_size, meeting_point, device, TIMEOUT)
