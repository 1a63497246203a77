"""The measurements: each is a function of an engine and returns a result to report."""

import statistics
from collections.abc import Callable

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu.ceilings import Ceilings
from bench.gpu.engine import Engine, random_prompts
from bench.gpu.shapes import Shape


class Sizes(msgspec.Struct, frozen=True):
    """Sizes of the measurements."""

    batches: list[int]
    context: int  # prompt tokens of decodes
    new_tokens: int
    prefills: list[tuple[int, int]]  # prompts that arrive together, and their tokens
    shared_rows: int
    shared_tokens: int  # of a prompt that these rows share
    ttft_length: int
    busy_batch: int
    busy_steps: int
    rival_batches: list[int]
    rounds: int  # of each measurement, for a median; an additional first one warms up


LARGE = Sizes(
    batches=[1, 2, 4, 8, 16, 32, 64, 128, 256],
    context=512,
    new_tokens=128,
    prefills=[(1, 1024), (1, 8000), (8, 4096), (64, 128)],
    shared_rows=64,
    shared_tokens=7936,  # as many as the context of 8192 lets
    ttft_length=4096,
    busy_batch=64,
    busy_steps=48,
    rival_batches=[16, 64],
    rounds=3,
)
DRY = Sizes(
    batches=[1, 3],
    context=24,
    new_tokens=6,
    prefills=[(2, 48), (1, 30)],
    shared_rows=3,
    shared_tokens=64,
    ttft_length=80,
    busy_batch=2,
    busy_steps=3,
    rival_batches=[2],
    rounds=1,
)


class Decode(msgspec.Struct, frozen=True):
    batch: int
    tokens_per_s: float
    ceiling: float  # tokens per second if a step only took as long as its reads
    share: float  # of the ceiling


class Prefill(msgspec.Struct, frozen=True):
    prompts: int
    prompt_tokens: int
    tokens_per_s: float
    of_product: float  # share of the measured matrix product's rate
    mfu: float | None  # share of the data sheet's peak; None if it is unknown


class FirstToken(msgspec.Struct, frozen=True):
    prompt_tokens: int
    cached_share: float
    cached_tokens: int  # as the engine says
    milliseconds: float


class Busy(msgspec.Struct, frozen=True):
    batch: int
    steps: int
    share: float  # of the time in which at least one kernel ran
    gap_us: float  # of a step, in which none ran


class Shared(msgspec.Struct, frozen=True):
    """Decodes of rows with one prompt, which is computed and read once, and with a prompt each."""

    rows: int
    prompt_tokens: int
    shared_tokens_per_s: float
    distinct_tokens_per_s: float

    @property
    def ratio(self) -> float:
        return self.shared_tokens_per_s / self.distinct_tokens_per_s


class EndToEnd(msgspec.Struct, frozen=True):
    """From sending prompts to receiving all tokens."""

    batch: int
    seconds: float
    tokens_per_s: float  # of output


def median(rounds: int, measure: Callable[[int], float]) -> float:
    """The median of `rounds` rounds, called with their numbers, after one that warms up."""
    return statistics.median([measure(number) for number in range(rounds + 1)][1:])


def decode(
    engine: Engine, shape: Shape, sizes: Sizes, ceilings: Ceilings, weight_size: int
) -> list[Decode]:
    """Greedy decodes after distinct prompts, measured once all have started.

    Args:
        weight_size: bytes of a weight
    """
    cell_bytes = shape.cell_values * engine.model.kv_pool.k[0].itemsize
    found = []
    for batch in sizes.batches:

        def rate(number: int, batch: int = batch) -> float:
            prompts = random_prompts(batch, sizes.context, shape.vocab_size, seed=number)
            job = engine.run(prompts, sizes.new_tokens)
            engine.flush_cache()
            return job.decoded_per_s

        context = sizes.context + sizes.new_tokens / 2
        step_bytes = weight_size * shape.weights_read(batch) + batch * context * cell_bytes
        ceiling = batch * ceilings.bytes_per_s / step_bytes
        tokens_per_s = median(sizes.rounds, rate)
        found.append(Decode(batch, tokens_per_s, ceiling, tokens_per_s / ceiling))
    return found


def prefill(engine: Engine, shape: Shape, sizes: Sizes, ceilings: Ceilings) -> list[Prefill]:
    """Prompts that arrive together, to their first tokens."""
    return [
        _prefill(engine, shape, sizes.rounds, ceilings, count, length)
        for count, length in sizes.prefills
    ]


def _prefill(
    engine: Engine, shape: Shape, rounds: int, ceilings: Ceilings, count: int, length: int
) -> Prefill:

    def seconds(number: int) -> float:
        job = engine.run(random_prompts(count, length, shape.vocab_size, number), 1)
        engine.flush_cache()
        return job.all_started - job.sent

    took = median(rounds, seconds)
    flops_per_s = shape.prefill_flops(count * length, length) / took
    peak = ceilings.peak_flops_per_s
    return Prefill(
        prompts=count,
        prompt_tokens=length,
        tokens_per_s=count * length / took,
        of_product=flops_per_s / ceilings.flops_per_s,
        mfu=None if peak is None else flops_per_s / peak,
    )


def shared(engine: Engine, shape: Shape, sizes: Sizes) -> Shared:
    """Each row has 16 tokens of its own behind the prompt."""
    rows, length = sizes.shared_rows, sizes.shared_tokens

    def rate(number: int, is_shared: bool) -> float:
        prompts = random_prompts(1 if is_shared else rows, length, shape.vocab_size, number)
        own = random_prompts(rows, 16, shape.vocab_size, number + 1000)
        whole = [prompts[row % len(prompts)] + tokens for row, tokens in enumerate(own)]
        if is_shared:
            engine.run(prompts, 1)  # so that its rows find it
        job = engine.run(whole, sizes.new_tokens)
        engine.flush_cache()
        return job.decoded_per_s

    return Shared(
        rows,
        length,
        median(sizes.rounds, lambda number: rate(number, True)),
        median(sizes.rounds, lambda number: rate(number, False)),
    )


def first_tokens(engine: Engine, shape: Shape, sizes: Sizes) -> list[FirstToken]:
    """The time to first token of a prompt that runs alone, with parts of it in the cache."""
    length, found = sizes.ttft_length, []
    for share in (0.0, 0.5, 0.9):
        cached: list[int] = []

        def seconds(number: int, share: float = share, cached: list[int] = cached) -> float:
            [prompt] = random_prompts(1, length, shape.vocab_size, number)
            if share:
                engine.run([prompt[: int(share * length)]], 1)
            job = engine.run([prompt], 1)
            cached[:] = job.cached.values()
            engine.flush_cache()
            return job.all_started - job.sent

        milliseconds = 1000 * median(sizes.rounds, seconds)
        found.append(FirstToken(length, share, cached[0], milliseconds))
    return found


def busy(engine: Engine, shape: Shape, sizes: Sizes) -> Busy:
    """Decode steps under torch's profiler, which slows down the host, so this is a lower bound."""

    idle: list[float] = []

    def share(number: int) -> float:
        prompts = random_prompts(sizes.busy_batch, sizes.context, shape.vocab_size, number)
        spans = _busy_spans_of(engine, prompts, sizes.busy_steps)
        covered, whole = covered_time(spans)
        idle.append((whole - covered) / sizes.busy_steps)
        return covered / whole if whole else 1.0

    found = median(sizes.rounds, share)
    return Busy(sizes.busy_batch, sizes.busy_steps, found, statistics.median(idle[1:]))


def _busy_spans_of(
    engine: Engine, prompts: list[list[int]], steps: int
) -> list[tuple[float, float]]:
    """When kernels ran, in microseconds."""
    job = engine.send(prompts, 2 * steps + 8)
    while not job.all_started:
        engine.step(job)
    on_gpu = engine.settings.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        for _ in range(steps):
            engine.step(job)
        if on_gpu:
            torch.cuda.synchronize()
    engine.finish(job)
    engine.flush_cache()
    kind = "DeviceType.CUDA" if on_gpu else "DeviceType.CPU"
    return [
        (event.time_range.start, event.time_range.end)
        for event in seen.events() or ()
        if str(event.device_type) == kind
    ]


def covered_time(spans: list[tuple[float, float]]) -> tuple[float, float]:
    """How much of the time from the first span's start to the last one's end is covered, and how
    long that is."""
    covered, until = 0.0, min(start for start, _ in spans)
    begin = until
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered, until - begin


def end_to_end(engine: Engine, shape: Shape, sizes: Sizes) -> list[EndToEnd]:
    """The jobs that transformers also runs."""
    found = []
    for batch in sizes.rival_batches:

        def seconds(number: int, batch: int = batch) -> float:
            prompts = random_prompts(batch, sizes.context, shape.vocab_size, number)
            job = engine.run(prompts, sizes.new_tokens)
            engine.flush_cache()
            return job.ended - job.sent

        took = median(sizes.rounds, seconds)
        found.append(EndToEnd(batch, took, batch * sizes.new_tokens / took))
    return found
