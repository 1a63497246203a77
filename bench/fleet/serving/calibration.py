"""Learns from the endpoint's own `usage` how many tokens it counts per word."""

from bench.fleet.serving.client import Client, Record
from bench.fleet.serving.workloads import TextMaker

# A short and a long text: the difference is due to the words, the rest to the template.
SHORT_WORDS, LONG_WORDS = 40, 400


class CalibrationError(Exception):
    """The endpoint did not answer a plain request, or does not report token counts."""


async def calibrate(client: Client) -> TextMaker:
    """Raises CalibrationError with the endpoint's own message."""
    maker = TextMaker()
    short, long = [
        _counted(await client.send([("user", maker.text(words, f"calibration {words}"))], 1))
        for words in (SHORT_WORDS, LONG_WORDS)
    ]
    if long <= short:
        raise CalibrationError(
            f"its usage counts {short} tokens for {SHORT_WORDS} words, {long} for {LONG_WORDS}"
        )
    tokens_per_word = (long - short) / (LONG_WORDS - SHORT_WORDS)
    return TextMaker(tokens_per_word, max(0.0, short - SHORT_WORDS * tokens_per_word))


def _counted(record: Record) -> int:
    # A token may be half a character, or invisible: only the usage is needed here.
    if record.error is not None and record.prompt_tokens == 0:
        raise CalibrationError(f"{record.error}: {record.error_detail}")
    return record.prompt_tokens
