"""The first words of Redis's error replies, and what they say of the server."""

WRONG_SERVER = frozenset(("READONLY", "MASTERDOWN", "LOADING"))
"""This server is no master any more, or not yet: its name may lead to another one by now."""

OTHER_NODE = frozenset(("MOVED", "ASK"))
"""Another node of a Redis Cluster holds the key."""

REFUSED_WRITE = {
    "READONLY": "it is a replica; use the address of the master",
    "NOREPLICAS": "it has lost its replicas; bring them back, or lower min-replicas-to-write",
    "MISCONF": "it cannot write to its disk; free space there, or see its log",
    "OOM": "its memory is full; raise maxmemory, or give Pando a Redis of its own",
}
"""It answers reads, and refuses writes: why that is and what to do. More is in docs/redis.md."""

# fmt: off
PASSING = WRONG_SERVER | OTHER_NODE | frozenset((
    "BUSY", "CLUSTERDOWN", "NOAUTH", "NOPERM", "TRYAGAIN", "WRONGPASS",
))
# fmt: on
"""These tell of the server's state and not of a mistake in the command."""

NEEDS_CLUSTER_URL = (
    "the server belongs to a Redis Cluster, so its URL has to be redis+cluster://host:port"
    " (rediss+cluster:// with TLS), without the number of a database"
)


def refusal_word(message: str) -> str:
    """The kind of an error reply, such as "READONLY".

    Where a script's command was refused, Redis 6.2 hides the kind in the middle of its message;
    redis-py cuts off the "ERR" before that.
    """
    message = message.removeprefix("ERR ")
    word, _, rest = message.partition(" ")
    if message.startswith("Error running script"):
        for part in rest.split():
            if part[0] == "-" and part[1:].isupper():
                return part[1:]
    return word
