"""Load on any OpenAI endpoint, and what its clients observed: latencies, throughput, goodput,
errors.

Run: python -m bench.fleet.serve --url http://127.0.0.1:30000 --workload shared-prefix --rate 4
Terms, definitions and examples: docs/benchmarking.md.
"""

import asyncio
import itertools
import platform
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import click
import msgspec
from rich.console import Console

from bench.fleet.serving import arrivals, workloads
from bench.fleet.serving.calibration import CalibrationError, calibrate
from bench.fleet.serving.client import API, Client, Endpoint, Record
from bench.fleet.serving.load import closed_loop, open_loop
from bench.fleet.serving.statistics import Report, Slo, summarize
from bench.fleet.serving.table import show
from bench.fleet.serving.workloads import Lengths, Session, TextMaker

WARM_UP_SEED_OFFSET = 1_000_003  # keeps warm-up prompts different from measured ones


@dataclass(frozen=True, slots=True)
class Options:
    """The command line; also in the JSON output."""

    url: str
    model: str | None
    api: API
    workload: Literal["random", "shared-prefix", "multi-turn", "trace"]
    sessions: int
    arrivals: Literal["poisson", "constant", "trace"]
    rate: float | None
    users: int | None
    prompt_tokens: int
    output_tokens: int
    spread: float
    prefix_tokens: int
    groups: int
    turns: int
    trace: Path | None
    trace_scale: float
    trace_speed: float
    max_input_tokens: int | None
    ignore_eos: bool
    temperature: float
    extra_body: str
    slo_ttft_ms: float | None
    slo_tpot_ms: float | None
    slo_e2e_ms: float | None
    warmup: int
    seed: int
    timeout_s: float
    api_key: str | None
    output: Path | None
    each: bool

    @property
    def slo(self) -> Slo | None:
        limits = (self.slo_ttft_ms, self.slo_tpot_ms, self.slo_e2e_ms)
        if limits == (None, None, None):
            return None
        return Slo(*(None if ms is None else ms / 1000 for ms in limits))


@click.command()
@click.option("--url", default="http://127.0.0.1:30000", show_default=True, help="without /v1")
@click.option("--model", help="default: the first that the endpoint lists")
@click.option(
    "--api", type=click.Choice(["chat", "completions"]), default="chat", show_default=True
)
@click.option(
    "--workload",
    type=click.Choice(["random", "shared-prefix", "multi-turn", "trace"]),
    default="random",
    show_default=True,
)
@click.option(
    "--sessions",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="number of sessions; one request each, except with multi-turn",
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant", "trace"]),
    default="poisson",
    show_default=True,
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="open loop: sessions a second"
)
@click.option("--users", type=click.IntRange(1), help="closed loop: sessions at once")
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="of a prompt, including the shared prefix; of a user's turn with multi-turn",
)
@click.option("--output-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option(
    "--spread",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="lengths are uniform between this share of their maximum and the maximum",
)
@click.option(
    "--prefix-tokens",
    type=click.IntRange(0),
    default=400,
    show_default=True,
    help="shared by a group's prompts; the system prompt with multi-turn",
)
@click.option(
    "--groups",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="shared-prefix: number of different prefixes",
)
@click.option("--turns", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="requests in Mooncake's format, .jsonl or .jsonl.gz",
)
@click.option(
    "--trace-scale",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="factor on the trace's lengths",
)
@click.option(
    "--trace-speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="factor on the trace's pace",
)
@click.option(
    "--max-input-tokens",
    type=click.IntRange(1),
    help="skip longer requests of the trace (before scaling); their number is reported",
)
@click.option(
    "--ignore-eos/--keep-eos",
    default=True,
    show_default=True,
    help="send ignore_eos, an extension of vLLM, SGLang and Pando",
)
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True)
@click.option("--extra-body", default="{}", help="JSON object with more fields for each request")
@click.option("--slo-ttft-ms", type=click.FloatRange(0, min_open=True))
@click.option("--slo-tpot-ms", type=click.FloatRange(0, min_open=True))
@click.option("--slo-e2e-ms", type=click.FloatRange(0, min_open=True))
@click.option(
    "--warmup",
    type=click.IntRange(0),
    default=4,
    show_default=True,
    help="concurrent sessions before the measured ones",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--timeout-s",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="time limit of one request",
)
@click.option("--api-key", envvar="OPENAI_API_KEY", help="or OPENAI_API_KEY")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="file for the result as JSON"
)
@click.option("--each", is_flag=True, help="include every request in the JSON")
def main(**given: Any) -> None:
    """Puts load on an OpenAI endpoint; exits with 1 if a request failed."""
    options = Options(**given)
    _check(options)
    console = Console(soft_wrap=True)
    try:
        result = asyncio.run(run(options, console))
    except CalibrationError as error:
        raise click.ClickException(f"{options.url} cannot be measured: {error}") from error
    show(result.report, console)
    if options.output is not None:
        options.output.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    sys.exit(1 if result.report.errors else 0)


class Result(msgspec.Struct):
    """The JSON output."""

    options: dict[str, Any]
    model: str
    tokens_per_word: float
    left_out: int  # requests of the trace beyond max_input_tokens
    python: str
    generator_cpu_share: float  # of one core; near 1 the generator was the bottleneck
    report: Report
    requests: list[Record] | None = None  # with --each; times are seconds of one arbitrary clock


async def run(options: Options, console: Console) -> Result:
    """Finds the model, calibrates, warms up, and measures.

    Raises:
        CalibrationError: the endpoint does not answer.
    """
    model = options.model or await _first_model(options)
    extra = {"temperature": options.temperature, **msgspec.json.decode(options.extra_body)}
    if options.ignore_eos:
        extra["ignore_eos"] = True
    endpoint = Endpoint(options.url, model, options.api, options.api_key, extra)
    client = Client(endpoint, options.timeout_s)
    try:
        maker = await calibrate(client)
        lines, left_out = _trace(options)
        if options.warmup:
            warm = _sessions(options, maker, lines, options.seed + WARM_UP_SEED_OFFSET)
            await closed_loop(client, warm, options.warmup, options.warmup)
        console.print(
            f"{model} at {options.url}: {maker.tokens_per_word:.3f} tokens a word,"
            f" {maker.overhead_tokens:.0f} of the template; {left_out} requests left out"
        )
        began, cpu = time.perf_counter(), _cpu_s()
        records = await _measure(options, client, maker, lines)
        share = (_cpu_s() - cpu) / (time.perf_counter() - began)
    finally:
        await client.close()
    return Result(
        options={k: str(v) if isinstance(v, Path) else v for k, v in asdict(options).items()}
        | {"api_key": None},
        model=model,
        tokens_per_word=maker.tokens_per_word,
        left_out=left_out,
        python=platform.python_version(),
        generator_cpu_share=share,
        report=summarize(records, options.slo),
        requests=records if options.each else None,
    )


async def _measure(
    options: Options, client: Client, maker: TextMaker, lines: list[workloads.TraceLine]
) -> list[Record]:
    sessions = _sessions(options, maker, lines, options.seed)
    if options.users is not None:
        return await closed_loop(client, sessions, options.users, options.sessions)
    # Made beforehand, because making text takes longer than sending it.
    ready = list(itertools.islice(sessions, options.sessions))
    return await open_loop(client, iter(ready), _arrivals(options, lines), options.sessions)


def _sessions(
    options: Options, maker: TextMaker, lines: list[workloads.TraceLine], seed: int
) -> Iterator[Session]:
    prompt = Lengths(options.prompt_tokens, options.spread)
    output = Lengths(options.output_tokens, options.spread)
    match options.workload:
        case "random":
            return workloads.random_prompts(maker, prompt, output, seed)
        case "shared-prefix":
            return workloads.shared_prefix(
                maker, options.groups, options.prefix_tokens, prompt, output, seed
            )
        case "multi-turn":
            return workloads.multi_turn(
                maker, options.turns, options.prefix_tokens, prompt, output, seed
            )
        case "trace":
            return workloads.traced(maker, lines, options.trace_scale, seed)


def _arrivals(options: Options, lines: list[workloads.TraceLine]) -> Iterator[float]:
    if options.arrivals == "trace":
        return arrivals.recorded([line.timestamp for line in lines], options.trace_speed)
    assert options.rate is not None
    if options.arrivals == "constant":
        return arrivals.constant(options.rate)
    return arrivals.poisson(options.rate, options.seed)


def _trace(options: Options) -> tuple[list[workloads.TraceLine], int]:
    if options.trace is None:
        return [], 0
    return workloads.read_trace(options.trace, options.max_input_tokens)


async def _first_model(options: Options) -> str:
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    try:
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.get(options.url.rstrip("/") + "/v1/models") as response,
        ):
            response.raise_for_status()
            return str((await response.json())["data"][0]["id"])
    except (aiohttp.ClientError, OSError, LookupError, ValueError) as error:
        raise CalibrationError(f"/v1/models: {error}") from error


def _check(options: Options) -> None:
    """Raises click.UsageError if options contradict each other."""
    traced = options.workload == "trace" or options.arrivals == "trace"
    if traced and options.trace is None:
        raise click.UsageError("workload or arrivals 'trace' require --trace FILE")
    if not traced and options.trace is not None:
        raise click.UsageError("--trace is for --workload trace or --arrivals trace")
    if options.users is not None and (options.rate is not None or options.arrivals == "trace"):
        raise click.UsageError(
            "--users is the closed loop; it has neither --rate nor a trace's pace"
        )
    if options.users is None and (options.rate is None) != (options.arrivals == "trace"):
        raise click.UsageError("set one of --rate, --arrivals trace, or --users for a closed loop")
    if options.workload == "shared-prefix" and options.prefix_tokens >= options.prompt_tokens:
        raise click.UsageError("--prefix-tokens must be less than --prompt-tokens")
    try:
        if not isinstance(msgspec.json.decode(options.extra_body), dict):
            raise click.UsageError("--extra-body must be a JSON object")
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--extra-body: {error}") from error


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
