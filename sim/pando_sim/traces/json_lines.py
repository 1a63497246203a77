"""Decodes lines of JSON."""

from pathlib import Path
from typing import TypeVar

import msgspec

from pando_fleet.misread import misread
from pando_sim.traces.errors import LineError
from pando_sim.traces.lines import Line

Struct = TypeVar("Struct", bound=msgspec.Struct)


def decode(path: Path, line: Line, decoder: msgspec.json.Decoder[Struct]) -> Struct:
    """Raises LineError."""
    try:
        return decoder.decode(line.text)
    except msgspec.ValidationError as error:
        raise LineError(path, line.number, misread(error).about("the line")) from error
    except msgspec.DecodeError as error:
        what = misread(error).about("the line")
        raise LineError(path, line.number, what, "it is not JSON") from error
    except (UnicodeError, RecursionError) as error:
        raise LineError(path, line.number, str(error), "it is not JSON") from error
