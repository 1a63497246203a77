"""Logging for all processes of Pando: human-readable on a terminal, JSON lines elsewhere.

Components log with the standard library (`logging.getLogger("pando.router")`, structured fields in
`extra=`). Each process calls `configure` once, which sets the format. It can be pickled with its
settings (`functools.partial(configure, settings)`), so that spawned processes log the same way.
"""

import logging
import re
import sys
from collections.abc import Callable, MutableMapping
from datetime import datetime
from types import TracebackType
from typing import Annotated, Any, Literal, TextIO

import structlog
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from structlog.typing import Processor

from pando.redact import redact


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
    handler.setFormatter(_formatter(settings))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # Its INFO lists the folders that it searched for fonts, which is no use to readers of a report.
    logging.getLogger("matplotlib").setLevel(max(logging.WARNING, root.level))
    sys.excepthook = _log_uncaught


def is_human(settings: LogSettings) -> bool:
    """Whether log lines are written for people rather than for machines."""
    return settings.format == "human" or (settings.format == "auto" and sys.stderr.isatty())


def renderer(settings: LogSettings) -> Callable[[MutableMapping[str, Any]], str]:
    """Returns a function that renders a record as a line: its event, its fields, and the process
    that it comes from unless that is this one."""
    to_json = structlog.processors.JSONRenderer(default=str)
    to_text = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(),
        exception_formatter=structlog.dev.plain_traceback,  # other formatters show local variables
    )

    def render_for_machines(record: MutableMapping[str, Any]) -> str:
        return redact(str(to_json(None, "", record)))

    def render_for_people(record: MutableMapping[str, Any]) -> str:
        process = record.pop("process", "")
        if "timestamp" in record:
            local_time = datetime.fromisoformat(record["timestamp"]).astimezone()
            record["timestamp"] = f"{local_time:%H:%M:%S}"
        line = redact(str(to_text(None, "", _printable(record))))
        return f"{process:>9} {line}" if process else line

    return render_for_people if is_human(settings) else render_for_machines


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


def _formatter(settings: LogSettings) -> logging.Formatter:
    render = renderer(settings)
    fields: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=fields,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            lambda _logger, _method, record: render(record),
        ],
    )


def _printable(record: MutableMapping[str, Any]) -> dict[str, Any]:
    """So that nothing a client sends, such as a path, moves a terminal's cursor or looks like a
    line of its own: further lines of a message are indented."""
    return {
        name: _CONTROLS.sub(_escaped, value) if isinstance(value, str) else value
        for name, value in record.items()
    }


_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return "\n    " if character == "\n" else character.encode("unicode_escape").decode()
