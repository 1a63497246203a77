"""A Redis URL in settings."""

from pando_fleet.redis.url_form import is_plain, plausible


def readable(url: str) -> str:
    """Returns the URL. Raises ValueError if `connect` cannot parse it."""
    if is_plain(plausible(url)):
        return url
    # Imported here: redis-py takes a fifth of a second, and most URLs need none of it.
    from pando_fleet.redis.client import FleetError, connect

    try:
        connect(url)
    except FleetError as error:
        raise ValueError(str(error)) from None
    return url
