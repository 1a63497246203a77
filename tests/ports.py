"""Ports for servers that tests start.

A server may need seconds until it listens on its port, and a router shares its port with any other
process that shares it, too. So each of pytest's processes has ports of its own, and takes none
twice while it has others.
"""

import os
from itertools import cycle
from random import SystemRandom

from pando.up.free_port import PORTS, is_free

_NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_COUNT = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_MINE = SystemRandom().sample(PORTS[_NUMBER::_COUNT], len(PORTS[_NUMBER::_COUNT]))
_NEXT = cycle(_MINE)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of this IPv4 host that nobody uses now. Raises OSError where none is free."""
    for _ in _MINE:
        if is_free(host, port := next(_NEXT)):
            return port
    raise OSError(f"no port of {host} is free")
