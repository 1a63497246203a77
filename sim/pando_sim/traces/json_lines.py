"""Lines of JSON as structs; what is wrong with one says its line."""

from pathlib import Path
from typing import TypeVar

import msgspec

from pando_sim.traces.errors import TraceError
from pando_sim.traces.lines import Line

Struct = TypeVar("Struct", bound=msgspec.Struct)


def decode(path: Path, line: Line, decoder: msgspec.json.Decoder[Struct]) -> Struct:
    """Raises TraceError."""
    try:
        return decoder.decode(line.text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise TraceError(path, line.number, str(error)) from error
