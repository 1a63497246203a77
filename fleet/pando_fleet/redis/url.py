"""A Redis URL in settings."""


def readable(url: str) -> str:
    """Returns the URL. Raises ValueError if `connect` cannot parse it."""
    # Imported here: redis-py takes a fifth of a second, and commands that only pass settings on,
    # such as `pando up`, need none of it.
    from pando_fleet.redis.client import FleetError, connect

    try:
        connect(url)
    except FleetError as error:
        raise ValueError(str(error)) from None
    return url
