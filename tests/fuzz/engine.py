"""Runs crowds of random requests through engines with random settings, until the time is up.

    python -m tests.fuzz.engine --minutes 30

Every token must be the best one by transformers, or the one that a draw from its probabilities
yields, and after each crowd every page must be free again. A crowd is determined by its seed, so a
failure can be repeated: `--seed N --minutes 0`.
"""

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.messages import FinishReason
from pando_worker.policies.schedule import SCHEDULE_POLICIES
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.settings import WorkerSettings
from tests.fuzz.crowd import EOS, Asked, Crowd, Truth
from tests.fuzz.models import SHIPPED, VOCAB, Checkpoint, checkpoints
from tests.worker.scheduler.world import World


@dataclass
class Tally:
    crowds: int = 0
    requests: int = 0
    tokens: int = 0
    drawn_tokens: int = 0
    aborted: int = 0
    rejected: int = 0
    retracted: int = 0
    flushed: int = 0
    evicted_tokens: int = 0
    host_loaded_tokens: int = 0
    with_windows: int = 0
    window_pages_loaded: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{value} {name}" for name, value in vars(self).items())


def random_shape(rng: random.Random) -> dict[str, Any]:
    page_size = rng.choice([1, 2, 4, 16, 64])
    return {
        "page_size": page_size,
        "pages": -(-rng.choice([150, 200, 300, 600, 4000]) // page_size),
        "max_running": rng.choice([1, 3, 8, 32]),
    }


def random_settings(rng: random.Random, cell_bytes: int) -> dict[str, Any]:
    radix_cache = rng.random() < 0.9
    host_tokens = rng.choice([0, 256, 5000]) if radix_cache else 0
    return {
        "overlap_schedule": rng.random() < 0.7,
        "batching": rng.choice(["decode-first", "decode-first", "prefill-first"]),
        "schedule_policy": rng.choice([*SCHEDULE_POLICIES]),
        "eviction_policy": rng.choice(["lru", "lru", "lfu", "fifo"]),
        "chunked_prefill_size": rng.choice([64, 100, 512]),
        "new_token_ratio": rng.choice([0.01, 0.01, 0.3, 1.0]),
        "watermark": rng.choice([0.0, 0.01, 0.2]),
        "max_passed_over": rng.choice([0, 3, 256]),
        "radix_cache": radix_cache,
        "window_ratio": rng.choice([0.2, 0.5, 0.9, 1.0]),
        "host_memory_gib": host_tokens * cell_bytes / 2**30,
        "host_write": rng.choice(["write-back", "write-through-selective"]),
    }


def run_crowd(
    seed: int,
    models: Sequence[Checkpoint],
    grammars: GrammarCompiler,
    truth: Truth,
    tally: Tally,
) -> None:
    """Run one engine with all its requests."""
    rng = random.Random(seed)
    checkpoint = rng.choice(models)
    shape, settings = random_shape(rng), random_settings(rng, checkpoint.cell_bytes)
    worker = WorkerSettings(
        model=str(checkpoint.path),
        page_size=shape["page_size"],
        max_total_tokens=shape["pages"] * shape["page_size"],
        max_running_requests=shape["max_running"],
        threads=1,
        **settings,
    )
    model = TorchModelRunner(worker)
    threaded = ThreadedRunner(model)
    world = World(
        runner=threaded if worker.overlap_schedule else model,
        grammars=grammars,
        pools=model.pools,
        **shape,
        **settings,
    )
    try:
        asked = _drive(world, rng, tally)
        _check(world, asked, checkpoint, truth, tally)
    except Exception:
        click.echo(f"seed {seed}, {checkpoint.path.name}, {shape}, {settings}", err=True)
        raise
    finally:
        threaded.close()


def _drive(world: World, rng: random.Random, tally: Tally) -> list[Asked]:
    crowd = Crowd(rng)
    longest = min(world.kv.max_request_tokens, 250)
    asked: list[Asked] = []
    for _ in range(rng.randint(3, 25)):
        for request in crowd.ask(longest):
            asked.append(request)
            world.send(
                request.rid,
                request.prompt,
                request.max_new_tokens,
                request.stop_token_ids,
                grammar=request.grammar,
                priority=rng.randint(-2, 2),
                **request.sampling,
            )
        for _ in range(rng.choice([0, 1, 5, 30])):
            world.step()
            world.check_ownership()
        if rng.random() < 0.2:
            world.abort(rng.choice(asked).rid)
        if rng.random() < 0.2:
            tally.flushed += world.flush()
    world.run(max_steps=1_000_000)
    world.check_ownership()
    world.kv.check_idle()
    assert world.scheduler.stats().pinned_tokens == 0
    return asked


def _check(
    world: World, asked: list[Asked], checkpoint: Checkpoint, truth: Truth, tally: Tally
) -> None:
    for request in asked:
        tally.requests += 1
        if request.rid in world.rejected:
            raise AssertionError(world.rejected[request.rid].message)
        produced, finish = world.tokens[request.rid], world.finish[request.rid]
        tally.tokens += len(produced)
        tally.drawn_tokens += len(produced) if request.sampling.get("temperature") else 0
        tally.aborted += finish is FinishReason.ABORT
        if finish is FinishReason.ABORT:
            cut = Asked(**{**vars_of(request), "max_new_tokens": len(produced)})
            truth.check(checkpoint.truth, cut, produced, ended_by_stop=False)
        else:
            truth.check(
                checkpoint.truth, request, produced, ended_by_stop=finish is FinishReason.STOP
            )
    tally.crowds += 1
    stats = world.scheduler.stats()
    tally.retracted += stats.retracted_requests_total
    tally.evicted_tokens += stats.evicted_tokens_total
    tally.host_loaded_tokens += stats.host_loaded_tokens_total
    tally.with_windows += world.kv.windows is not None
    loads = (batch.window_loads for batch in world.batches)
    tally.window_pages_loaded += sum(len(each.host) for each in loads if each)


def vars_of(request: Asked) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


@click.command()
@click.option("--minutes", type=float, default=30, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="of the first crowd")
def main(minutes: float, seed: int) -> None:
    """Fuzz the engine against transformers."""
    torch.set_num_threads(1)
    grammars = GrammarCompiler(SHIPPED, VOCAB, [EOS])
    truth, tally = Truth(grammars), Tally()
    end = shown = time.monotonic()
    end += 60 * minutes
    with tempfile.TemporaryDirectory() as directory:
        models = checkpoints(Path(directory))
        while True:
            run_crowd(seed, models, grammars, truth, tally)
            seed += 1
            now = time.monotonic()
            if now - shown > 60 or now >= end:
                shown = now
                click.echo(
                    f"next seed {seed}: {tally}, {truth.ties} near ties, {truth.jumps} jumps recut"
                )
            if now >= end:
                break
    sys.exit(0)


if __name__ == "__main__":
    main()
