"""Reads a trace's lines one after the other; recognizes gzip by the content."""

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from pando_sim.traces.errors import TraceError

MAX_LINE = 64 * 1024 * 1024
"""Bytes, as many as a router accepts in a request's body."""

_GZIP = b"\x1f\x8b"


class Line(NamedTuple):
    number: int  # from 1
    text: bytes  # without surrounding white space; never empty
    is_whole: bool  # it ends with a newline


def lines(path: Path) -> Iterator[Line]:
    """The lines that are not empty. Raises TraceError if the file cannot be read."""
    try:
        with _open(path) as file:
            yield from _split(path, file)
    except (OSError, EOFError, zlib.error) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise TraceError(path, None, f"cannot be read: {why}") from error


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP)) == _GZIP
    return gzip.open(path) if is_gzip else path.open("rb")


def _split(path: Path, file: gzip.GzipFile | BufferedReader) -> Iterator[Line]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise TraceError(path, number, f"is longer than {MAX_LINE:,} bytes")
        if text := line.strip():
            yield Line(number, text, line.endswith(b"\n"))
