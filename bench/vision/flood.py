"""Text streams beside a flood of large images: how much slower is the next token?

Run on a quiet machine: python -m bench.vision.flood
A worker with a model that sees has some text streams. In each round they run alone, beside a flood
of requests with as many tokens in text, and beside a flood of requests with an image each, sent at
the same rate. The ratio of the last two is what reading images and the vision tower cost; that to
the first contains the prompts of the flood, too. No image and no text comes twice. A round in which
other programs took more than --noise of the cores does not count, and another one takes its place.
"""

import asyncio
import base64
import io
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

from bench.engine.cpu_engine import described
from bench.fleet.serving.client import Client, Endpoint, Record
from bench.fleet.serving.gguf_servers import pando_worker
from bench.vision.models import IMAGE_TOKENS, write_models
from bench.vision.others import Cores

STREAMS_AFTER_S = 1.0  # of a flood
PHASES = ("alone", "text", "images")
TRIES = 4  # rounds for each that counts
WORDS = int(IMAGE_TOKENS / 3.2)  # of three digits, that many tokens each


@dataclass(frozen=True, slots=True)
class Phase:
    gap_s: float  # mean time between two tokens of a stream
    worst_s: float  # the longest one of any stream
    sent: int  # requests of the flood
    done: int  # of these, answered
    flood_tokens: int  # of their prompts
    answer_s: float  # the median time to their answers
    others: float  # the part of the cores that other programs took


@click.command(help=__doc__)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--streams", type=click.IntRange(1), default=4, show_default=True)
@click.option("--tokens", type=click.IntRange(8), default=600, show_default=True, help="a stream")
@click.option("--rate", default=2.0, show_default=True, help="requests of the flood a second")
@click.option("--width", type=click.IntRange(16), default=4000, show_default=True)
@click.option("--height", type=click.IntRange(16), default=3000, show_default=True)
@click.option("--noise", type=click.FloatRange(0, 1), default=0.05, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
def main(
    rounds: int,
    streams: int,
    tokens: int,
    rate: float,
    width: int,
    height: int,
    noise: float,
    threads: int,
) -> None:
    picture = _picture(width, height)
    with tempfile.TemporaryDirectory() as scratch:
        _, sees = write_models(Path(scratch))
        flags = (
            "--served-model-name",
            "m",
            "--max-image-pixels",
            str(max(width * height, 1 << 25)),
        )
        with pando_worker(str(sees), threads, flags) as server:
            measured = asyncio.run(
                _measure(server.url, rounds, streams, tokens, rate, picture, noise)
            )
    size = len(picture) / 1e6
    click.echo(
        f"{streams} streams of {tokens} tokens; the flood: {rate:g} requests a second, images of"
        f" {width} x {height} pixels, {size:.1f} MB each\n"
    )
    click.echo(
        "| beside | a token, ms | longest gap, ms | of alone | of text | flood answered |"
        " other programs, % |"
    )
    click.echo("|---|---|---|---|---|---|---|")
    for name in PHASES:
        mine = [phases[name] for phases in measured]
        click.echo(
            f"| {name} | {1e3 * statistics.median(one.gap_s for one in mine):.2f}"
            f" | {1e3 * max(one.worst_s for one in mine):.0f}"
            f" | {_ratio(measured, name, 'alone'):.2f} | {_ratio(measured, name, 'text'):.2f}"
            f" | {sum(one.done for one in mine)} of {sum(one.sent for one in mine)},"
            f" {sum(one.flood_tokens for one in mine)} tokens,"
            f" in {statistics.median(one.answer_s for one in mine):.1f} s"
            f" | {100 * statistics.mean(one.others for one in mine):.1f} |"
        )
    click.echo(f"\n{described(threads)}; medians of {rounds} rounds")


def _ratio(measured: list[dict[str, Phase]], name: str, other: str) -> float:
    """The median of the ratios of each round, since noise affects neighbours alike."""
    return statistics.median(phases[name].gap_s / phases[other].gap_s for phases in measured)


async def _measure(
    url: str,
    rounds: int,
    streams: int,
    tokens: int,
    rate: float,
    picture: bytes,
    noise: float,
) -> list[dict[str, Phase]]:
    extra = {"temperature": 0, "ignore_eos": True}
    client = Client(Endpoint(url, "m", "chat", extra=extra), timeout_s=300)
    unused = (_seen(_variant(picture, number)) for number in itertools.count())
    numbers = itertools.count()
    try:
        await _ask(client, next(unused))  # once the processor is loaded
        measured: list[dict[str, Phase]] = []
        for _ in range(TRIES * rounds):
            phases = {}
            for name in PHASES:
                prompts = {
                    "alone": iter(()),
                    "text": (_text(next(numbers)) for _ in itertools.count()),
                    "images": unused,
                }[name]
                phases[name] = await _phase(client, streams, tokens, rate, prompts)
            loudest = max(phase.others for phase in phases.values())
            ratios = ", ".join(f"{name} {_ratio([phases], name, 'alone'):.2f}" for name in PHASES)
            click.echo(f"{ratios} of alone, others {100 * loudest:.1f} %", err=True)
            if loudest <= noise:
                measured.append(phases)
            if len(measured) == rounds:
                return measured
        raise click.ClickException(f"only {len(measured)} quiet rounds of {TRIES * rounds}")
    finally:
        await client.close()


async def _phase(
    client: Client, streams: int, tokens: int, rate: float, prompts: Iterator[Any]
) -> Phase:
    """The streams, beside a flood that begins before and ends after them."""
    asked: list[asyncio.Task[Record]] = []

    async def flood() -> None:
        began = time.perf_counter()
        for number, content in enumerate(prompts):
            await asyncio.sleep(began + number / rate - time.perf_counter())
            asked.append(asyncio.create_task(_ask(client, content)))

    before = Cores.now()
    flooding = asyncio.create_task(flood())
    await asyncio.sleep(STREAMS_AFTER_S)
    records = await asyncio.gather(
        *(client.send([("user", f"Story {number}")], tokens) for number in range(streams))
    )
    others = before.others_until(Cores.now())
    flooding.cancel()
    floods = await asyncio.gather(*asked)
    if failed := [record for record in records if record.error]:
        raise click.ClickException(f"a stream failed: {failed[0].error_detail}")
    gaps = [
        later - earlier
        for record in records
        for earlier, later in itertools.pairwise(record.chunks)
    ]
    return Phase(
        gap_s=statistics.mean(record.tpot or 0.0 for record in records),
        worst_s=max(gaps),
        sent=len(floods),
        done=sum(record.error is None for record in floods),
        flood_tokens=sum(record.prompt_tokens for record in floods),
        answer_s=statistics.median([record.end_to_end for record in floods] or [0.0]),
        others=others,
    )


async def _ask(client: Client, content: Any) -> Record:
    return await client.send([("user", content)], 1)


def _seen(url: str) -> Any:
    return [{"type": "image_url", "image_url": {"url": url}}]


def _text(number: int) -> str:
    rng = np.random.default_rng(number)
    return " ".join(f"{word:03d}" for word in rng.integers(0, 1000, WORDS))


def _picture(width: int, height: int) -> bytes:
    """Smooth shapes and some noise, as a JPEG file."""
    rng = np.random.default_rng(0)
    shapes = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    pixels = np.asarray(shapes.resize((width, height), Image.Resampling.BICUBIC))
    noise = rng.integers(0, 12, (height, width, 1), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.minimum(pixels, 243) + noise).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _variant(picture: bytes, number: int) -> str:
    """Another image of the same size for each number, as a `data:` URL: the first steps of the
    file's first table of quantization are larger."""
    table = picture.index(b"\xff\xdb") + 5  # behind the marker, the length and the table's number
    steps = bytearray(picture[table : table + 4])
    for place in range(4):
        steps[place] += number // 5**place % 5
    changed = picture[:table] + steps + picture[table + 4 :]
    return "data:image/jpeg;base64," + base64.b64encode(changed).decode()


if __name__ == "__main__":
    sys.exit(main())
