"""Why a worker cannot be measured."""


class CalibrationError(Exception):
    """The worker cannot be measured; the message is one line and gives the reason."""


class BusyError(CalibrationError):
    """Others use the worker, so the times would not be its own speed."""


class UndeterminedError(CalibrationError):
    """The measurements are too few or too noisy for a model; more of them may be enough."""
