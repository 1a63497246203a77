"""Why a stream cannot go on at another replica; the messages reach clients and logs."""


class MigrationError(Exception):
    """`outcome` is the metric's word for it."""

    outcome = "refused"


class RefusedError(MigrationError):
    """Nobody could go on with it as if nothing had happened, or nobody is to."""


class DivergedError(MigrationError):
    """The new replica says something else than what the client already has."""

    outcome = "diverged"
