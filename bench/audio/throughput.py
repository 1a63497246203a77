"""Files of speech per second: Pando's worker against transformers' pipeline, and repeated files.

Run on a quiet machine: python -m bench.audio.throughput --model whisper-base --speech librivox
Both get the same files of 30 s in turns, in each round other ones: the pipeline as one batch, the
worker as requests at once. Then each of some files is sent twice to the worker, alone: the second
time its encoding is cached, and its answer is verified in one step.
`python -m examples.audio.fetch` gets the model and the speech. Further flags of the worker follow
`--`, such as `-- --kv-cache-dtype bfloat16`.
"""

import asyncio
import itertools
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import click

from bench.audio.pipeline import Heard, Pipeline
from bench.audio.speech_files import files_of, read_sentences, wav
from bench.engine.cpu_engine import described
from bench.fleet.serving.gguf_servers import pando_worker
from bench.vision.others import Cores

_FIRST_TOKENS = r"^pando_worker_time_to_first_token_seconds_sum (\S+)$"


@dataclass(frozen=True, slots=True)
class Round:
    pando: Heard
    pipeline: Heard
    others: float  # the part of the cores that other programs took

    @property
    def ratio(self) -> float:
        return self.pipeline.seconds / self.pando.seconds


@dataclass(frozen=True, slots=True)
class Repeat:
    """A file's answers, streamed, the first time and again."""

    first: "Began"
    again: "Began"


@dataclass(frozen=True, slots=True)
class Began:
    """
    Attributes:
        token: seconds to the first token, as the worker measures it
        text: seconds to the first piece of text that the client gets: all of a window's
        answer: the whole text
    """

    token: float
    text: float
    answer: str


@click.command(help=__doc__)
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--speech", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--files", type=click.IntRange(1), default=8, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="long files")
@click.option("--seconds", type=float, default=30.0, show_default=True, help="of a file")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.argument("flags", nargs=-1)
def main(
    model: Path,
    speech: Path,
    rounds: int,
    files: int,
    repeats: int,
    seconds: float,
    threads: int,
    flags: Sequence[str],
) -> None:
    sentences = read_sentences(speech)
    made = files_of(sentences, files * (rounds + 2), seconds)
    batches = (made[at : at + files] for at in itertools.count(0, files))
    with (
        pando_worker(str(model), threads, ("--served-model-name", "m", *flags)) as server,
        Pipeline(model, threads, files) as peer,
    ):
        warm = next(batches)[:1]
        peer.run(warm)
        asyncio.run(_at_once(server.url, warm))
        measured = [_round(server.url, peer, next(batches)) for _ in range(rounds)]
        long = asyncio.run(_repeats(server.url, next(batches)[:repeats]))
        short = asyncio.run(_repeats(server.url, [wav(one) for one in sentences]))
    _report(measured, files)
    click.echo("\n| files | to the | first time, ms | again, ms | ratio | same text |")
    click.echo("|---|---|---|---|---|---|")
    lengths = [len(one) / 32_000 for one in sentences]
    for name, measured_twice in (
        (f"{len(long)} of {seconds:g} s", long),
        (f"{len(short)} of {min(lengths):.1f} to {max(lengths):.1f} s", short),
    ):
        same = statistics.mean(one.first.answer == one.again.answer for one in measured_twice)
        for what, times in (
            ("first token", [(one.first.token, one.again.token) for one in measured_twice]),
            ("first text", [(one.first.text, one.again.text) for one in measured_twice]),
        ):
            first, again = (1e3 * statistics.median(each) for each in zip(*times, strict=True))
            ratio = statistics.median(before / after for before, after in times)
            row = f"{name} | {what} | {first:.0f} | {again:.0f} | {ratio:.2f} | {100 * same:.0f}%"
            click.echo(f"| {row} |")
    click.echo(f"\n{described(threads)}; medians of {rounds} rounds")


def _round(url: str, peer: Pipeline, files: list[bytes]) -> Round:
    before = Cores.now()
    theirs = peer.run(files)
    ours = asyncio.run(_at_once(url, files))
    found = Round(ours, theirs, before.others_until(Cores.now()))
    click.echo(
        f"{theirs.seconds:.1f} s and {ours.seconds:.1f} s, others {100 * found.others:.1f} %",
        err=True,
    )
    return found


def _report(rounds: Sequence[Round], files: int) -> None:
    click.echo("| engine | s for all files | files/s | ratio | same text |\n|---|---|---|---|---|")
    same = statistics.mean(
        ours == theirs
        for one in rounds
        for ours, theirs in zip(one.pando.texts, one.pipeline.texts, strict=True)
    )
    theirs = statistics.median(one.pipeline.seconds for one in rounds)
    ours = statistics.median(one.pando.seconds for one in rounds)
    ratio = statistics.median(one.ratio for one in rounds)
    click.echo(f"| transformers' pipeline | {theirs:.2f} | {files / theirs:.2f} | 1.00 | |")
    click.echo(f"| Pando | {ours:.2f} | {files / ours:.2f} | {ratio:.2f} | {100 * same:.0f}% |")
    others = statistics.mean(one.others for one in rounds)
    click.echo(f"\nOther programs took {100 * others:.1f} % of the cores.")


async def _at_once(url: str, files: Sequence[bytes]) -> Heard:
    async with aiohttp.ClientSession(url) as http:
        began = time.perf_counter()
        texts = await asyncio.gather(*(_text(http, file) for file in files))
        return Heard(time.perf_counter() - began, list(texts))


async def _text(http: aiohttp.ClientSession, file: bytes) -> str:
    async with http.post("/v1/audio/transcriptions", data=_form(file)) as answer:
        answer.raise_for_status()
        text: str = (await answer.json())["text"]
        return text


async def _repeats(url: str, files: Sequence[bytes]) -> list[Repeat]:
    async with aiohttp.ClientSession(url) as http:
        return [Repeat(await _first(http, file), await _first(http, file)) for file in files]


async def _first(http: aiohttp.ClientSession, file: bytes) -> Began:
    form = _form(file)
    form.add_field("stream", "true")
    token = await _first_token_seconds(http)
    began = time.perf_counter()
    async with http.post("/v1/audio/transcriptions", data=form) as answer:
        answer.raise_for_status()
        line = await answer.content.readline()
        seconds = time.perf_counter() - began
        text = (line + await answer.read()).decode()
    token = await _first_token_seconds(http) - token
    return Began(token, seconds, text)


async def _first_token_seconds(http: aiohttp.ClientSession) -> float:
    """Of all requests so far, summed."""
    async with http.get("/metrics") as answer:
        (found,) = re.findall(_FIRST_TOKENS, await answer.text(), re.MULTILINE)
        return float(found)


def _form(file: bytes) -> aiohttp.FormData:
    form = aiohttp.FormData({"model": "m", "language": "en"}, default_to_multipart=True)
    form.add_field("file", file, filename="speech.wav")
    return form


if __name__ == "__main__":
    sys.exit(main())
