"""How a log record becomes a line: JSON for machines, or columns for people.

A record is a mapping: `event`, `level`, `logger` and `timestamp`, what a caller gave in `extra=`,
and after an exception its traceback in `exception`. A line of another process may lack any of them.
"""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pando.redact import redact

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVEL_WIDTH, _EVENT_WIDTH, _PROCESS_WIDTH = 9, 30, 9

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN = 1, 2, 31, 32, 33, 34, 35, 36
_LEVELS = {"debug": _GREEN, "info": _GREEN, "warning": _YELLOW, "error": _RED, "critical": _RED}

# Nothing that a client sends, such as a path, may move a terminal's cursor or look like a line of
# its own: further lines of a value are indented.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_AMBIGUOUS = re.compile(r"[\s='\"]")  # in a value without quotes


def record_of(record: logging.LogRecord, exception: str) -> dict[str, Any]:
    """
    Args:
        exception: the traceback as text; empty without one
    """
    moment = datetime.fromtimestamp(record.created, UTC)
    fields: dict[str, Any] = {
        "event": record.getMessage(),
        "level": record.levelname.lower(),
        "logger": record.name,
        **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        "timestamp": moment.isoformat().replace("+00:00", "Z"),
    }
    if exception:
        fields["exception"] = exception
    return fields


def for_machines(record: Mapping[str, Any]) -> str:
    return redact(json.dumps(record, default=str))


def for_people(record: Mapping[str, Any], *, has_colors: bool) -> str:
    """The process that the record comes from, unless that is this one, then the columns."""

    def painted(text: str, *styles: int) -> str:
        if not has_colors or not text:
            return text
        return "".join(f"\x1b[{style}m" for style in styles) + f"{text}\x1b[0m"

    fields = {name: _printable(value) for name, value in record.items()}
    process, event = fields.pop("process", ""), fields.pop("event", "")
    level, exception = str(fields.pop("level", "")), fields.pop("exception", "")
    columns = [f"{process:>{_PROCESS_WIDTH}}"] if process else []
    if moment := fields.pop("timestamp", ""):
        columns.append(painted(f"{datetime.fromisoformat(moment).astimezone():%H:%M:%S}", _DIM))
    if level:
        name = painted(f"{level:<{_LEVEL_WIDTH}}", _LEVELS.get(level, _RED), _BOLD)
        columns.append(f"[{name}]")
    logger = fields.pop("logger", "")
    is_last = not logger and not fields
    columns.append(painted(str(event) if is_last else f"{event!s:<{_EVENT_WIDTH}}", _BOLD))
    if logger:
        columns.append(f"[{painted(str(logger), _BOLD, _BLUE)}]")
    columns += [
        f"{painted(name, _CYAN)}={painted(_value(fields[name]), _MAGENTA)}"
        for name in sorted(fields)
    ]
    line = " ".join(columns)
    return redact(f"{line}\n{exception}" if exception else line)


def _value(value: object) -> str:
    return value if isinstance(value, str) and not _AMBIGUOUS.search(value) else repr(value)


def _printable(value: Any) -> Any:
    return _CONTROLS.sub(_escaped, value) if isinstance(value, str) else value


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return "\n    " if character == "\n" else character.encode("unicode_escape").decode()
