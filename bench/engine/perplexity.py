"""Perplexity of a model on a text of this repository, for each way to keep its weights.

Run: python -m bench.engine.perplexity
The text is cut into windows, each of them a prompt whose log-probabilities the engine gives. It
begins with the special tokens that the model's tokenizer puts first, which Gemma cannot do without.
Tokens are those of that tokenizer, so compare numbers of one model only. Results: docs/models.md.
"""

import math
import time
from pathlib import Path

import click

from pando_worker.batch import ModelRunner
from pando_worker.messages import (
    Event,
    Generate,
    LogprobsWanted,
    Outputs,
    Rejected,
    SamplingParams,
)
from pando_worker.models.loading.hub import resolve_model
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.settings import WorkerSettings
from pando_worker.tokenizer.loading import load_tokenizer

TEXT = Path(__file__).parents[1] / "texts/prose.txt"
WAYS = ("none", "auto", "int8", "int4")


@click.command(help=__doc__)
@click.option("--model", default="smollm2", show_default=True, help="as pando worker takes it")
@click.option("--ways", default=",".join(WAYS), show_default=True, help="values of quantization")
@click.option("--tokens", default=20_480, show_default=True, help="of the text, at most")
@click.option("--window", default=512, show_default=True, help="tokens of a prompt")
@click.option("--threads", default=2, show_default=True)
@click.option("--kv-cache-dtype", default="auto", show_default=True)
def main(
    model: str, ways: str, tokens: int, window: int, threads: int, kv_cache_dtype: str
) -> None:
    text = TEXT.read_text(encoding="utf-8")
    tokenizer = load_tokenizer(resolve_model(model))
    ids = tokenizer.encode(text, add_special_tokens=False)[:tokens]
    windows = [ids[start : start + window] for start in range(0, len(ids), window)]
    first_ids = tokenizer.encode("", add_special_tokens=True)
    click.echo(f"{len(ids)} tokens in windows of {window}, kv_cache_dtype {kv_cache_dtype}\n")
    click.echo("| quantization | perplexity | against the first | seconds |")
    click.echo("|---|---|---|---|")
    first: float | None = None
    for way in ways.split(","):
        settings = WorkerSettings.model_validate(
            {
                "model": model,
                "quantization": way,
                "threads": threads,
                "max_total_tokens": 2 * window,  # of two prompts, or one and what it begins with
                "cpu_kernels": "off" if way == "none" else "on",
                "kv_cache_dtype": kv_cache_dtype,
                "radix_cache": False,
            }
        )
        started = time.perf_counter()
        value = perplexity(settings, windows, first_ids)
        first = first or value
        seconds = time.perf_counter() - started
        click.echo(f"| {way} | {value:.3f} | {value / first - 1:+.2%} | {seconds:.0f} |")


def perplexity(settings: WorkerSettings, windows: list[list[int]], first_ids: list[int]) -> float:
    """Of token ids in windows, each behind `first_ids`; without these its first token is given."""
    model = TorchModelRunner(settings)
    runner: ModelRunner = model
    scheduler = make_scheduler(settings, model.pools, runner)
    scores: list[float] = []
    for ids in windows:
        scores += _scores(scheduler, first_ids + ids)[max(0, len(first_ids) - 1) :]
    return math.exp(-sum(scores) / len(scores))


def _scores(scheduler: Scheduler, ids: list[int]) -> list[float]:
    """Log-probabilities of all tokens but the first."""
    wanted = LogprobsWanted(prompt_start=0)
    sampling = SamplingParams(max_new_tokens=1, temperature=0.0)
    command = Generate(rid="window", input_ids=ids, sampling=sampling, logprobs=wanted)
    events = scheduler.receive(command)
    while not scheduler.is_idle:
        events += scheduler.step()
    return [score for event in events for score in _of(event)]


def _of(event: Event) -> list[float]:
    if isinstance(event, Rejected):
        raise RuntimeError(event.message)
    if not isinstance(event, Outputs):
        return []
    return [one.logprob for output in event.outputs for one in output.prompt_logprobs]


if __name__ == "__main__":
    main()
