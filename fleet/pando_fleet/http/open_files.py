"""How many files a process may have open; each connection is one."""

import resource

OTHER_FILES = 64
"""Files besides clients' connections: those to Redis, and files that are read."""


def allow_open_files() -> int:
    """Raises the limit to the system's maximum for this process, and returns it.

    The usual limit of 1,024 exists for programs that call select().
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
