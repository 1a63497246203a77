"""What a Redis URL begins with, checked without redis-py."""

from urllib.parse import urlsplit

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")
"""The beginnings of a URL; the last two also with TLS, rediss+."""

WRONG_SCHEME = f"a Redis URL must start with {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}, then ://"
UNREADABLE = "the Redis URL cannot be parsed; percent-encode a password's special characters"


def plausible(url: str) -> str:
    """Returns the URL. Raises ValueError if its scheme or port is wrong.

    For commands whose start redis-py would delay; `connect` finds the rest later.
    """
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
