"""A worker against sentence-transformers on the same sentence encoder, in turns.

Run: python -m bench.engine.sentences --sentence-transformers VENV/bin/python
VENV has the package `sentence-transformers`. The worker's times are those of a client of its API:
HTTP, JSON and vectors in base64 included. The peer's are those of a call of `encode` in its own
process, which returns numpy's array. Each job goes to one after the other, so noise hits both.
"""

import json
import subprocess
import sys
import time
from base64 import b64decode
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import click
import numpy as np
import psutil

from pando_worker.models.loading.hub import resolve_model
from pando_worker.server.machine import machine
from tests.worker.server.process.worker_process import WorkerProcess

_TEXT = (
    "the tree grows slowly in a garden behind our old house while children play near the river and"
    " a train passes over the bridge every morning before work begins at the mill down the valley"
)

_PEER = """
import json, sys, time
import torch
torch.set_num_threads(int(sys.argv[2]))
from sentence_transformers import SentenceTransformer, __version__
model = SentenceTransformer(sys.argv[1], device="cpu")
print(json.dumps({"version": __version__}), flush=True)
for line in sys.stdin:
    texts = json.loads(line)
    start, cpu = time.perf_counter(), time.process_time()
    vectors = model.encode(texts, batch_size=len(texts), show_progress_bar=False)
    taken = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"seconds": taken, "vectors": vectors.tolist()}), flush=True)
"""


_WARM_UP = 3


def sentences(count: int, shortest: int, longest: int) -> list[str]:
    """Of lengths from `shortest` to `longest` words, the same each time."""
    random = np.random.default_rng(0)
    lengths = random.integers(shortest, longest + 1, count).tolist()
    return [" ".join(random.choice(_TEXT.split(), length)) for length in lengths]


@click.command(help=__doc__)
@click.option("--sentence-transformers", required=True, help="the Python that has it")
@click.option("--model", default="all-minilm-l6-v2", show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--repetitions", default=30, show_default=True)
def main(sentence_transformers: str, model: str, threads: int, repetitions: int) -> None:
    """Race both on all jobs."""
    path = resolve_model(model)
    print(machine("cpu", 1))
    with (
        _peer(sentence_transformers, path, threads) as peer,
        WorkerProcess.start(
            stand_in=False, model=str(path), served_model_name="m", threads=threads
        ) as worker,
        closing(HTTPConnection(urlsplit(worker.url).netloc)) as client,
    ):
        print("sentence-transformers", json.loads(_line(peer))["version"])
        for count, shortest, longest in ((32, 5, 15), (32, 5, 60), (32, 20, 20), (1, 12, 12)):
            texts = sentences(count, shortest, longest)
            ours: list[float] = []
            theirs: list[float] = []
            cpu = [0.0, 0.0]  # seconds on all cores, of the worker's processes and of the peer
            for repetition in range(-_WARM_UP, repetitions):
                (seconds, peer_cpu), vectors = _ask_peer(peer, texts)
                before = _cpu_s(worker)
                own_seconds, own = _ask_worker(client, texts)
                assert np.abs(own - vectors).max() < 1e-5, "both must compute the same"
                if repetition >= 0:
                    ours.append(own_seconds)
                    theirs.append(seconds)
                    cpu[0] += _cpu_s(worker) - before
                    cpu[1] += peer_cpu
            own_s, peer_s = median(ours), median(theirs)
            own_cpu, their_cpu = (1e3 * each / repetitions for each in cpu)
            print(
                f"{count} texts of {shortest} to {longest} words: worker {own_s * 1e3:.1f} ms"
                f" ({own_cpu:.1f} ms of CPU), sentence-transformers {peer_s * 1e3:.1f} ms"
                f" ({their_cpu:.1f} ms): {peer_s / own_s:.2f} times",
                flush=True,
            )


def _cpu_s(worker: WorkerProcess) -> float:
    processes = [psutil.Process(worker.process.pid), *worker.children()]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _peer(python: str, path: Path, threads: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-c", _PEER, str(path), str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(peer: subprocess.Popen[str]) -> str:
    assert peer.stdout
    if not (line := peer.stdout.readline()):
        sys.exit("the peer ended")
    return line


def _ask_peer(
    peer: subprocess.Popen[str], texts: list[str]
) -> tuple[tuple[float, float], np.ndarray]:
    """Seconds, those of CPU, and the vectors."""
    assert peer.stdin
    print(json.dumps(texts), file=peer.stdin, flush=True)
    found = json.loads(_line(peer))
    return found["seconds"], np.array(found["vectors"])


def _ask_worker(client: HTTPConnection, texts: list[str]) -> tuple[float, np.ndarray]:
    body = {"model": "m", "input": texts, "encoding_format": "base64"}
    start = time.perf_counter()
    headers = {"content-type": "application/json"}
    client.request("POST", "/v1/embeddings", json.dumps(body), headers)
    answer = client.getresponse()
    found = answer.read()
    assert answer.status == 200, found
    data = json.loads(found)["data"]
    vectors = [np.frombuffer(b64decode(one["embedding"]), dtype="<f4") for one in data]
    return time.perf_counter() - start, np.stack(vectors)


if __name__ == "__main__":
    main()
