"""The event loop beside a long video: how long does it stand still?

Run on a quiet machine: python -m bench.vision.loop
A video with hundreds of MiB of pixel values is read as in the HTTP process, and sent to another
process as for two choices. A task that wakes every half millisecond in the same event loop measures
the longest time between two of its turns. A round in which other programs took more than --noise of
the cores does not count, and another one takes its place.
"""

import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import click
import zmq

from bench.engine.cpu_engine import described
from bench.vision.others import Cores
from pando_worker.messages import Generate, SamplingParams
from pando_worker.models.config import read_config
from pando_worker.server.images import prompt_image
from pando_worker.vision.reader import ImageLimits, ImageReader, Videos
from pando_worker.vision.video_files import VideoLimits
from pando_worker.wire import CommandSender
from tests.worker.vision.films import film
from tests.worker.vision.photographs import data_url
from tests.worker.vision.qwen import save_qwen

WIDTH, HEIGHT, RATE = 600, 400, 8
PAUSE_S = 0.5
TRIES = 4  # rounds for each that counts


@click.command(help=__doc__)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--frames", type=click.IntRange(2), default=160, show_default=True)
@click.option("--noise", type=click.FloatRange(0, 1), default=0.05, show_default=True)
def main(rounds: int, frames: int, noise: float) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(_measure(Path(scratch), rounds, frames, noise))
    click.echo(f"\n{described(1)}; medians and maxima of {rounds} rounds")


class _Gaps:
    """The longest time between two turns of the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.0005)
            now = time.perf_counter()
            self.longest_s, last = max(self.longest_s, now - last), now

    def end(self) -> float:
        self._task.cancel()
        return self.longest_s


async def _measure(directory: Path, rounds: int, frames: int, noise: float) -> None:
    reader = _reader(directory, frames)
    await reader.loaded()
    url = data_url(film(frames=frames, rate=RATE, size=(WIDTH, HEIGHT)), "video/mp4")
    endpoint = f"ipc://{directory}/commands"
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_receive, args=(endpoint,), daemon=True)
    process.start()
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.set_hwm(0)
    socket.connect(endpoint)
    sender = CommandSender(socket)
    alone, beside, mebibytes = [], [], 0.0
    try:
        for _ in range(TRIES * rounds):
            before, gaps = Cores.now(), _Gaps()
            await asyncio.sleep(4 * PAUSE_S)
            idle, gaps = gaps.end(), _Gaps()
            mebibytes = await _send(reader, sender, url)
            await asyncio.sleep(2 * PAUSE_S)  # until all is sent and unmapped
            busy, others = gaps.end(), before.others_until(Cores.now())
            click.echo(f"{1e3 * idle:.1f}, {1e3 * busy:.1f} ms, others {others:.1%}", err=True)
            if others <= noise:
                alone.append(idle)
                beside.append(busy)
            if len(alone) == rounds:
                break
        else:
            raise click.ClickException(f"only {len(alone)} quiet rounds of {TRIES * rounds}")
    finally:
        reader.close()
        process.kill()
        context.destroy(linger=0)
    click.echo("| event loop | longest step, ms | at most, ms |\n|---|---|---|")
    for name, found in (("idle", alone), (f"a video of {mebibytes:.0f} MiB", beside)):
        click.echo(f"| {name} | {1e3 * statistics.median(found):.1f} | {1e3 * max(found):.1f} |")


async def _send(reader: ImageReader, sender: CommandSender, url: str) -> float:
    """Returns its pixel values' size in MiB."""
    images = tuple(prompt_image(frame, 0) for frame in await reader.read_video(url))
    sampling = SamplingParams(max_new_tokens=1)
    for number in range(2):
        sender.send(Generate(rid=str(number), input_ids=[1], sampling=sampling, images=images))
    await asyncio.sleep(PAUSE_S)
    return sum(image.num_bytes for image in images) / 2**20


def _reader(directory: Path, frames: int) -> ImageReader:
    """Of a small Qwen2.5-VL that sees every frame at its own size."""
    save_qwen(directory, "qwen2.5-vl")
    file = directory / "video_preprocessor_config.json"
    fields = json.loads(file.read_text())
    fields |= {"fps": RATE, "max_frames": frames}
    fields["size"] = {"shortest_edge": 64, "longest_edge": WIDTH * HEIGHT}
    file.write_text(json.dumps(fields))
    config = read_config(directory)
    assert config.image_token is not None and config.video is not None
    return ImageReader(
        directory,
        config.image_token,
        ImageLimits(max_bytes=10**8, max_pixels=10**8, hosts=frozenset()),
        videos=Videos(
            config.video,
            VideoLimits(max_bytes=10**8, max_seconds=600, max_frames=frames, max_pixels=10**8),
        ),
        processes=1,
    )


def _receive(endpoint: str) -> None:
    socket = zmq.Context().socket(zmq.PULL)
    socket.bind(endpoint)
    while True:
        socket.recv_multipart(copy=False)


if __name__ == "__main__":
    sys.exit(main())
