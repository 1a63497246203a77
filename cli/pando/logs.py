"""Logging for all processes of Pando: human-readable on a terminal, JSON lines elsewhere.

Components log with the standard library (`logging.getLogger("pando.router")`, structured fields in
`extra=`). Each process calls `configure` once, which sets the format. It can be pickled with its
settings (`functools.partial(configure, settings)`), so that spawned processes log the same way.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Annotated, Any, Literal, TextIO

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from pando.log_lines import for_machines, for_people, record_of


class LogSettings(BaseSettings):
    """How a process logs, to its standard error."""

    model_config = SettingsConfigDict(env_prefix="PANDO_LOG_", extra="forbid", frozen=True)

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="lowest level logged")
    ] = "info"
    format: Annotated[
        Literal["auto", "human", "json"],
        Field(description="format of log lines; auto: human on a terminal, else json"),
    ] = "auto"


def configure(settings: LogSettings) -> None:
    """Send this process's logs to standard error; replaces earlier settings.

    Uncaught exceptions are logged, too.
    """
    handler = _StandardErrorHandler()
    handler.setFormatter(_Formatter(renderer(settings)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # Its INFO lists the folders that it searched for fonts, which is no use to readers of a report.
    logging.getLogger("matplotlib").setLevel(max(logging.WARNING, root.level))
    sys.excepthook = _log_uncaught


def renderer(settings: LogSettings) -> Callable[[Mapping[str, Any]], str]:
    """Returns the function that renders a record as a line, as the settings want it."""
    is_watched = sys.stderr.isatty()
    if settings.format == "human" or (settings.format == "auto" and is_watched):
        return partial(for_people, has_colors=is_watched)
    return for_machines


def _log_uncaught(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        logging.critical("uncaught %r", error, exc_info=(kind, error, traceback))


class _StandardErrorHandler(logging.StreamHandler[TextIO]):
    """Writes to the current sys.stderr, which a live table replaces while it is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class _Formatter(logging.Formatter):
    def __init__(self, render: Callable[[Mapping[str, Any]], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        has_error = record.exc_info and record.exc_info[0] is not None
        exception = self.formatException(record.exc_info) if has_error and record.exc_info else ""
        return self._render(record_of(record, exception))
