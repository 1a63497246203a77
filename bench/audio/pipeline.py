"""transformers' speech pipeline in a process of its own, which waits while others run."""

import io
import multiprocessing
import time
import wave
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Heard:
    seconds: float
    texts: list[str]


class Pipeline:
    """
    Args:
        batch: files that the model reads at once
    """

    def __init__(self, model: Path, threads: int, batch: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, model, threads, batch), daemon=True
        )
        self._process.start()
        theirs.close()

    def run(self, files: list[bytes]) -> Heard:
        """
        Args:
            files: 16-bit WAV, of one channel, at the model's rate

        Raises:
            EOFError: the process died.
        """
        self._connection.send(files)
        heard = self._connection.recv()
        assert isinstance(heard, Heard)
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._process.join()


def _serve(connection: Connection, model: Path, threads: int, batch: int) -> None:
    from transformers import pipeline

    torch.set_num_threads(threads)
    run = pipeline(
        "automatic-speech-recognition", str(model), dtype=torch.float32, batch_size=batch
    )
    # The pipeline's own default is a search with five beams.
    wanted = {"language": "en", "task": "transcribe", "num_beams": 1}
    while True:
        try:
            files = connection.recv()
        except EOFError:  # the benchmark is over
            return
        began = time.perf_counter()
        found = run([_sound(file) for file in files], generate_kwargs=wanted)
        seconds = time.perf_counter() - began
        connection.send(Heard(seconds, [one["text"].strip() for one in found]))


def _sound(file: bytes) -> dict[str, object]:
    with wave.open(io.BytesIO(file)) as opened:
        samples = np.frombuffer(opened.readframes(opened.getnframes()), "<i2")
        rate = opened.getframerate()
    return {"raw": samples.astype(np.float32) / 32768, "sampling_rate": rate}
