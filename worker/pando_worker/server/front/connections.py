"""How many connections of clients the worker's server may have."""

from pathlib import Path

from pando_fleet.http.open_files import OTHER_FILES, allow_open_files
from pando_worker.server.front.startup import CannotStartError

SPARE = 32  # connections reserved for probes, so that one is always answered
LEAST = 2 * SPARE


def fitting_connections(wanted: int) -> int:
    """The wanted number of connections, or fewer if the limit of open files is lower.

    Raises CannotStartError if the limit leaves too few to work with.
    """
    files = allow_open_files()
    here = sum(1 for _ in Path("/proc/self/fd").iterdir())
    most = min(wanted, files - here - OTHER_FILES)
    if most < LEAST:
        raise CannotStartError(
            f"this process may open {files} files, which leaves {most} for connections;"
            f" raise the limit (ulimit -n) to at least {LEAST + here + OTHER_FILES}"
        )
    return most
