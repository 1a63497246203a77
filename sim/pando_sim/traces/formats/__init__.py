"""The formats of traces, each with a reader of its lines. To add one, copy `mooncake.py` and list
it here.

format.py      what a format is, and how a first line shows it
mooncake.py    hashes of a prompt's blocks
text.py        real text: bodies of chats and completions, calls of agents
azure.py       lengths alone
recording.py   what routers record
sessions.py    agents' sessions, whose calls wait for each other

The settings describe the formats, so a reader, which loads numpy, is imported when a trace is read:
a mistake at the command line is reported before that.
"""

from pando_fleet.choices import by_name
from pando_sim.traces.formats.format import Format

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _any_of(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset((name,)) for name in names)


def _all_of(*names: str) -> tuple[frozenset[str], ...]:
    return (frozenset(names),)


RECORDING = Format(
    name="recording",
    help="what `pando router --record` writes",
    shown_by=_any_of("pando_recording"),
    names_models=True,
)

# The first that knows a file's first line reads it.
FORMATS = by_name(
    Format(
        name="azure",
        help="Azure's CSV",
        fields=", ".join(AZURE_COLUMNS),
        is_json=False,
        shown_by=_all_of(*AZURE_COLUMNS),
    ),
    RECORDING,
    Format(
        name="mooncake",
        help="Mooncake's JSON lines",
        fields="timestamp, input_length, output_length, hash_ids",
        shown_by=_any_of("hash_ids", "input_length"),
    ),
    Format(
        name="sessions",
        help="JSON lines of agents' sessions",
        fields="id, block_size, requests",
        shown_by=_all_of("requests", "block_size"),
    ),
    Format(
        name="text",
        help="JSON lines of OpenAI bodies",
        fields="timestamp; messages, prompt or input (or all of these in body); output_tokens or"
        " output; session_id; images; audio_seconds",
        shown_by=_any_of("body", "messages", "prompt", "input", "audio_seconds"),
        names_models=True,
    ),
)
