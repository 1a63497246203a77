"""Why a stream cannot continue at another replica; the messages reach clients and logs."""


class MigrationError(Exception):
    """`outcome` is its label in the metric."""

    outcome = "refused"


class RefusedError(MigrationError):
    """No replica can continue the stream exactly, or the settings forbid it."""


class DivergedError(MigrationError):
    """The new replica's answer differs from what the client already has."""

    outcome = "diverged"
