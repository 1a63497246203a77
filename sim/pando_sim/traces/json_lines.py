"""Decodes lines of JSON."""

from pathlib import Path
from typing import TypeVar

import msgspec

from pando_sim.traces.errors import LineError
from pando_sim.traces.lines import Line

Struct = TypeVar("Struct", bound=msgspec.Struct)


def decode(path: Path, line: Line, decoder: msgspec.json.Decoder[Struct]) -> Struct:
    """Raises LineError."""
    try:
        return decoder.decode(line.text)
    except msgspec.ValidationError as error:
        raise LineError(path, line.number, str(error)) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise LineError(path, line.number, str(error), "it is not JSON") from error
