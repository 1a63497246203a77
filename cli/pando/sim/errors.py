"""Why a simulation cannot run."""


class SimPlanError(Exception):
    """These settings cannot be simulated; the message is one line."""
