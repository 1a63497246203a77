"""What a pool's objects take from the operator's own settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One value of a Secret in the pool's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDefaults:
    image: str  # where a template names none
    image_pull_policy: str | None = None  # None: Kubernetes decides by the tag
    image_pull_secrets: tuple[str, ...] = ()  # names, where a template names none
    # Where workers find Redis. The URL may have a password, so it comes by reference, never by
    # value.
    redis_url: SecretKey
    # Further variables of each worker, such as PANDO_LOG_FORMAT; no secrets.
    variables: tuple[tuple[str, str], ...] = ()
