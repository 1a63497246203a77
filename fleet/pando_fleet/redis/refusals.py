"""The first words of Redis's error replies, and what they mean."""

WRONG_SERVER = frozenset(("READONLY", "MASTERDOWN", "LOADING"))
"""This server is not, or not yet, a master: by now its name may lead to another one."""

OTHER_NODE = frozenset(("MOVED", "ASK"))
"""Another node of a Redis Cluster holds the key."""

REFUSED_WRITE = {
    "READONLY": "it is a replica; use the address of the master",
    "NOREPLICAS": "it has lost its replicas; bring them back, or lower min-replicas-to-write",
    "MISCONF": "it cannot write to its disk; free space there, or see its log",
    "OOM": "its memory is full; raise maxmemory, or give Pando a Redis of its own",
}
"""It answers reads but refuses writes: the reason and what to do. More is in docs/redis.md."""

# fmt: off
PASSING = WRONG_SERVER | OTHER_NODE | frozenset((
    "BUSY", "CLUSTERDOWN", "NOAUTH", "NOPERM", "TRYAGAIN", "WRONGPASS",
))
# fmt: on
"""These describe the server's state, not a mistake in the command."""

NEEDS_CLUSTER_URL = (
    "the server belongs to a Redis Cluster, so its URL must be redis+cluster://host:port"
    " (rediss+cluster:// with TLS), without a database number"
)


def refusal_word(message: str) -> str:
    """The kind of an error reply, such as "READONLY".

    If a script's command was refused, Redis 6.2 puts the kind into the middle of its message, and
    redis-py removes the "ERR" before it.
    """
    message = message.removeprefix("ERR ")
    word, _, rest = message.partition(" ")
    if message.startswith("Error running script"):
        for part in rest.split():
            if part[0] == "-" and part[1:].isupper():
                return part[1:]
    return word
