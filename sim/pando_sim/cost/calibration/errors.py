"""What can keep a worker from being measured."""


class CalibrationError(Exception):
    """The worker cannot be measured; the message is one line and says why."""


class BusyError(CalibrationError):
    """Requests of others run there, so what is seen is not the worker's own speed."""
