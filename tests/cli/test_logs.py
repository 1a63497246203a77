"""The form of log lines, each test in its own process, as logging is configured per process."""

import json
import pickle
import re
import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from pando import logs
from pando.log_lines import for_people
from pando.redact import redact
from tests.waiting import PATIENCE_S

CONFIGURE = "import logging; from pando import logs; logs.configure(logs.LogSettings({settings}));"


def logged(code: str, settings: str = "") -> str:
    result = subprocess.run(
        [sys.executable, "-c", CONFIGURE.format(settings=settings) + code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert result.stdout == ""
    return result.stderr


def test_lines_are_json_with_their_extra_fields_where_nobody_watches() -> None:
    line = json.loads(
        logged("logging.getLogger('pando.x').info('did %s', 'it', extra={'request_id': 'r1'})")
    )
    assert line["event"] == "did it"
    assert line["level"] == "info"
    assert line["logger"] == "pando.x"
    assert line["request_id"] == "r1"
    assert line["timestamp"].endswith("Z")


def test_an_exception_stays_within_its_json_line() -> None:
    code = "\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('failed')\n"
    lines = logged(code).splitlines()
    assert len(lines) == 1
    assert "ZeroDivisionError" in json.loads(lines[0])["exception"]


def test_an_uncaught_exception_is_a_log_line_too() -> None:
    result = subprocess.run(
        [sys.executable, "-c", CONFIGURE.format(settings="") + "1 / 0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 1
    line = json.loads(result.stderr)
    assert line["event"] == "uncaught ZeroDivisionError('division by zero')"
    assert "Traceback" in line["exception"]


def test_lines_for_people_carry_the_extra_fields_too() -> None:
    text = logged("logging.warning('slow', extra={'request_id': 'r1'})", "format='human'")
    assert "warning" in text
    assert "slow" in text
    assert "request_id=r1" in text


@pytest.mark.parametrize("form", ["human", "json"])
def test_control_characters_neither_move_the_cursor_nor_forge_a_line(form: str) -> None:
    path = "/\x1b[31mEVIL\r\n12:00:00 [error] forged\x00\x9b\u2028"
    code = f"logging.warning('GET %s', {path!r}, extra={{'client': {path!r}}})"
    text = logged(code, f"format={form!r}")
    lines = text.splitlines()
    assert not set(text) & {"\x1b", "\r", "\x00", "\x9b", "\u2028"}
    assert "EVIL" in text
    assert all(line.startswith("    ") for line in lines[1:])
    assert form == "human" or len(lines) == 1


def test_lines_below_the_level_are_left_out() -> None:
    assert logged("logging.info('quiet')", "level='warning'") == ""


def test_a_first_plot_says_nothing_of_fonts(tmp_path: Path) -> None:
    no_cache = f"\nimport os; os.environ['MPLCONFIGDIR'] = {str(tmp_path)!r}\n"
    assert logged(no_cache + "import matplotlib.font_manager") == ""
    assert list(tmp_path.glob("fontlist*")), "fonts were not looked for"


def test_passwords_in_urls_never_reach_the_log() -> None:
    code = "logging.error('no answer from %s', 'rediss://me:s3cret:@x@redis.example:6379/0')"
    text = logged(code)
    assert "s3cret" not in text
    assert "redis.example" in text


def test_redaction_leaves_urls_without_a_password_alone() -> None:
    text = "http://127.0.0.1:8000/v1 unix:///tmp/a:b@c redis://user@host:6379"
    assert redact(text) == text


def test_configuring_can_be_sent_to_another_process() -> None:
    configure = partial(logs.configure, logs.LogSettings(format="json", level="debug"))
    assert pickle.loads(pickle.dumps(configure)).args == configure.args


def test_lines_for_people_have_columns_and_the_exception_below() -> None:
    moment = "2026-01-02T03:04:05.678Z"
    record = {
        "event": "it failed",
        "level": "error",
        "logger": "pando.x",
        "timestamp": moment,
        "path": "/two words",
        "count": 3,
        "name": "plain",
        "exception": "Traceback\n  1 / 0",
    }
    clock = f"{datetime.fromisoformat(moment).astimezone():%H:%M:%S}"
    first, *below = for_people(record, has_colors=False).split("\n")
    columns = f"{clock} [error    ] it failed                      [pando.x]"
    assert first == f"{columns} count=3 name=plain path='/two words'"
    assert below == ["Traceback", "      1 / 0"]
    assert for_people({"process": "redis", "event": "no logger's"}, has_colors=False) == (
        "    redis no logger's"
    )


def test_colors_are_those_of_the_level_and_change_no_text() -> None:
    for level, color in (("info", 32), ("warning", 33), ("error", 31), ("critical", 31)):
        record = {"event": "e", "level": level, "logger": "pando", "field": "v"}
        painted = for_people(record, has_colors=True)
        assert f"[\x1b[{color}m\x1b[1m{level}" in painted
        plain = re.sub(r"\x1b\[\d+m", "", painted)
        assert plain == for_people(record, has_colors=False)
