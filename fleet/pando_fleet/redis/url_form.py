"""What a Redis URL begins with, checked without redis-py."""

from urllib.parse import urlsplit

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")
"""The beginnings of a URL; the last two also with TLS, rediss+."""

WRONG_SCHEME = f"a Redis URL must start with {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}, then ://"
UNREADABLE = (
    "the Redis URL cannot be parsed: its port must be a number, its options (after ?) must be those"
    " of redis-py, and a password's special characters must be percent-encoded"
)


def plausible(url: str) -> str:
    """Returns the URL. Raises ValueError if its scheme or port is wrong."""
    try:
        parts = urlsplit(url)
        is_known = parts.scheme.replace("rediss+", "redis+") in SCHEMES
        if is_known and "," not in parts.netloc:  # one host
            _ = parts.port  # raises ValueError
    except ValueError:
        raise ValueError(UNREADABLE) from None
    if not is_known:
        raise ValueError(WRONG_SCHEME)
    return url


def is_plain(url: str) -> bool:
    """Whether `connect` can parse a plausible URL for sure: of one server, without options."""
    parts = urlsplit(url)
    return parts.scheme in ("redis", "rediss", "unix") and not parts.query and "," not in url
