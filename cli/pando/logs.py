"""Logging for every process of Pando: human-readable on a terminal, JSON lines elsewhere.

Components log with the standard library (`logging.getLogger("pando.router")`, structured fields in
`extra=`); `configure` decides once a process how that looks. It is picklable together with its
settings (`functools.partial(configure, settings)`), so that spawned processes do the same.
"""

import logging
import sys
from types import TracebackType
from typing import Annotated, Literal, TextIO

import structlog
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from structlog.typing import EventDict, Processor, WrappedLogger

from pando.redact import redact


class LogSettings(BaseSettings):
    """How a process logs, to its standard error."""

    model_config = SettingsConfigDict(env_prefix="PANDO_LOG_", extra="forbid")

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="least level logged")
    ] = "info"
    format: Annotated[
        Literal["auto", "human", "json"],
        Field(description="of log lines; auto is human on a terminal and json elsewhere"),
    ] = "auto"


def configure(settings: LogSettings) -> None:
    """Send this process's logs, uvicorn's included, to standard error. Replaces what was set.

    An exception that nobody catches becomes a log line too.
    """
    handler = _StandardErrorHandler()
    handler.setFormatter(_formatter(human=is_human(settings)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    sys.excepthook = _log_uncaught


def is_human(settings: LogSettings) -> bool:
    """Whether lines are for people rather than for machines."""
    return settings.format == "human" or (settings.format == "auto" and sys.stderr.isatty())


def _log_uncaught(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        logging.critical("uncaught %r", error, exc_info=(kind, error, traceback))


class _StandardErrorHandler(logging.StreamHandler[TextIO]):
    """Writes to what sys.stderr is at the moment: a live table replaces it while it is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _formatter(human: bool) -> logging.Formatter:
    fields: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _drop_color_message,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
    ]
    renderers: list[Processor]
    if human:
        renderers = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    else:
        renderers = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=fields,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *renderers,
            _redact,
        ],
    )


def _drop_color_message(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """uvicorn says some things twice, the second time in colours."""
    line.pop("color_message", None)
    return line


def _redact(_logger: WrappedLogger, _method: str, line: EventDict) -> str:
    """The last processor: the rendered line (structlog's types know it as an event)."""
    return redact(str(line))
