"""Azure's traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens. Prompts share nothing.

Source of the format: https://github.com/Azure/AzurePublicDataset (LLM inference traces of 2023 and
2024; the former end a second in 7 digits, the latter name a time zone).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pando_sim.traces.errors import LineError
from pando_sim.traces.formats import AZURE_COLUMNS
from pando_sim.traces.formats.format import Reader, column_names
from pando_sim.traces.lines import Line, lines
from pando_sim.traces.prompts import UniquePrompt
from pando_sim.traces.rows import Reading, Row, playable
from pando_sim.traces.unplayed import Unplayed


def rows(path: Path, reading: Reading, base: int, unplayed: Unplayed) -> Iterator[Row]:
    every = lines(path)
    names = column_names(next(every).text)
    at, prompt, output = (names.index(name) for name in AZURE_COLUMNS)
    places = at, prompt, output

    def row(line: Line) -> Row:
        at_s, prompt, output = _read(path, line, places)
        return Row(
            line=line.number,
            at_s=at_s,
            prompt=UniquePrompt(base + line.number, max(1, prompt)),
            output_tokens=output,
        )

    return playable(every, row, unplayed)


def _read(path: Path, line: Line, places: tuple[int, int, int]) -> tuple[float, int, int]:
    cells = line.text.decode("utf-8", "replace").split(",")
    if len(cells) <= max(places):
        what = f"has {len(cells)} columns; expected {', '.join(AZURE_COLUMNS)} first"
        raise LineError(path, line.number, what, "it has too few columns")
    at, prompt, output = (cells[place].strip() for place in places)
    try:
        when = datetime.fromisoformat(at)
    except ValueError:
        what = f"TIMESTAMP is {at!r}, which is not a time"
        raise LineError(path, line.number, what, "TIMESTAMP is not a time") from None
    for name, cell in zip(AZURE_COLUMNS[1:], (prompt, output), strict=True):
        if not cell.isascii() or not cell.isdigit():
            what = f"{name} is {cell!r}, not a whole number"
            raise LineError(path, line.number, what, f"{name} is not a whole number")
    # A time without a zone is not in this machine's zone; it has no daylight saving.
    moment = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return moment.timestamp(), int(prompt), int(output)


READER = Reader(rows=rows)
