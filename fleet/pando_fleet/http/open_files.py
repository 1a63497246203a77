"""How many files a process may have open: each connection is one."""

import resource

OTHER_FILES = 64
"""That a process may open beside its clients' connections: those to Redis, what it reads."""


def allow_open_files() -> int:
    """Raises the limit to what the system lets this process have, and returns it.

    The usual limit of 1,024 is for programs that call select().
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
