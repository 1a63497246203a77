"""Workloads: sessions of one or more turns, with chosen lengths and shared prefixes.

A workload is a stream of `Session`s that depends only on its parameters and seed. Text consists of
random short words. `TextMaker` knows how many tokens the endpoint counts per word (see
`calibration.py`), so that lengths in tokens are met without knowing the endpoint's tokenizer.
"""

import gzip
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

TRACE_BLOCK_TOKENS = 512  # in Mooncake's traces: one hash id per block of the prompt

# Frequent words: in the usual vocabularies most are one token each.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group"
    " country problem hand part place case week company system program question work government"
    " number night point home water room mother area money story fact month lot right study book"
    " eye job word business issue side kind head house service friend father power hour game line"
    " end member law car city community name president team minute idea body information back"
    " parent face others level office door health person art war history party result change"
    " morning reason research girl guy moment air teacher force education"
)
WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Turn:
    text: str  # the user's message, sent after earlier turns and their answers
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Session:
    """One user's turns, each sent when the previous answer has ended."""

    turns: tuple[Turn, ...]
    system: str = ""  # precedes the first turn


@dataclass(frozen=True, slots=True)
class TextMaker:
    """Makes text of a given length."""

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0  # of an empty request, by the chat template

    def text(self, tokens: float, key: str) -> str:
        """About `tokens` tokens, at least one word; the same key gives the same words."""
        words = random.Random(key).choices(WORDS, k=max(1, round(tokens / self.tokens_per_word)))
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Uniform between `spread` times `tokens` and `tokens`; always `tokens` at spread 1."""

    tokens: int
    spread: float = 1.0

    def draw(self, rng: random.Random) -> int:
        return rng.randint(max(1, round(self.tokens * self.spread)), self.tokens)


def random_prompts(
    maker: TextMaker, prompt: Lengths, output: Lengths, seed: int
) -> Iterator[Session]:
    """Prompts that share nothing."""
    for index in itertools.count():
        key = f"random {seed} {index}"
        rng = random.Random(f"{key} lengths")
        text = maker.text(prompt.draw(rng) - maker.overhead_tokens, key)
        yield Session((Turn(text, output.draw(rng)),))


def shared_prefix(
    maker: TextMaker, groups: int, prefix_tokens: int, prompt: Lengths, output: Lengths, seed: int
) -> Iterator[Session]:
    """Prompts that begin with the prefix of a uniformly drawn group, and continue individually.

    Args:
        prompt: total length, including the prefix
    """
    for index in itertools.count():
        key = f"shared {seed} {index}"
        rng = random.Random(f"{key} lengths")
        prefix = maker.text(prefix_tokens, f"shared {seed} group {rng.randrange(groups)}")
        rest = maker.text(prompt.draw(rng) - prefix_tokens - maker.overhead_tokens, key)
        yield Session((Turn(f"{prefix} {rest}", output.draw(rng)),))


def multi_turn(
    maker: TextMaker, turns: int, system_tokens: int, user: Lengths, output: Lengths, seed: int
) -> Iterator[Session]:
    """Conversations that all begin with one system prompt; prompts grow by question and answer."""
    system = maker.text(system_tokens, f"turns {seed} system") if system_tokens else ""
    for index in itertools.count():
        rng = random.Random(f"turns {seed} {index} lengths")
        yield Session(
            tuple(
                Turn(maker.text(user.draw(rng), f"turns {seed} {index} {turn}"), output.draw(rng))
                for turn in range(turns)
            ),
            system,
        )


class TraceLine(msgspec.Struct):
    """A request of a trace in Mooncake's format."""

    timestamp: float  # ms
    input_length: int  # tokens
    output_length: int
    hash_ids: list[int]  # one for each block of the input; equal ids mean equal prefixes


def read_trace(path: Path, max_input_tokens: int | None = None) -> tuple[list[TraceLine], int]:
    """The requests of a `.jsonl` or `.jsonl.gz` trace, and the number of longer ones left out.

    Raises:
        OSError: it cannot be read.
        msgspec.DecodeError: it is not in Mooncake's format.
    """
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    lines = msgspec.json.Decoder(TraceLine).decode_lines(data)
    kept = [x for x in lines if max_input_tokens is None or x.input_length <= max_input_tokens]
    return kept, len(lines) - len(kept)


def traced(maker: TextMaker, lines: list[TraceLine], scale: float, seed: int) -> Iterator[Session]:
    """The trace's requests: each block of a prompt is the text that its hash id stands for.

    Args:
        scale: factor on all lengths, for models and machines smaller than the trace's
    """
    for line in lines:
        lengths = [TRACE_BLOCK_TOKENS] * (line.input_length // TRACE_BLOCK_TOKENS)
        lengths += [rest] if (rest := line.input_length % TRACE_BLOCK_TOKENS) else []
        blocks = zip(line.hash_ids, lengths, strict=True)
        parts = [maker.text(tokens * scale, f"trace {seed} {block}") for block, tokens in blocks]
        yield Session((Turn(" ".join(parts), max(1, round(line.output_length * scale))),))
