"""`calibrate`: from the URL of a worker to its cost model, with the errors that remain."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from pando_sim.cost.calibration.client import Client, Way
from pando_sim.cost.calibration.design import Limits, Measurement, Texts, design
from pando_sim.cost.calibration.errors import BusyError, CalibrationError
from pando_sim.cost.calibration.fitting import Fitted, fit_model
from pando_sim.cost.calibration.observations import Observation, middle
from pando_sim.cost.calibration.worker import Load, Worker, check_idle, load_of, look_at

_COUNTERS_S = 2.0  # until the worker's counters include the last requests

Progress = Callable[[int, int], None]
"""Called with the number of measurements done and the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    url: str
    way: Way | None = None  # to the worker, if not direct; its delays are measured, too
    api_key: str | None = None
    machine: str | None = None  # in words, if the worker does not report its machine
    repeat: int = 5  # times to measure each; the median is used
    longest_prompt: int = 32_768  # tokens; the worker may allow fewer
    most_together: int = 64  # most requests that decode at once
    chunked_prefill_size: int | None = None  # if the worker does not report it
    capacity_tokens: int | None = None
    pause_s: float = 0.0  # before a request that runs alone, to measure a worker that was idle
    timeout_s: float = 600.0  # of one request
    seed: int | None = None  # of the prompts; by default a new one each time


@dataclass(frozen=True, slots=True)
class Calibration:
    worker: Worker
    machine: str
    observations: list[Observation]
    fitted: Fitted
    checked: bool  # the worker's counters show that it served nobody else


async def calibrate(options: Options, progress: Progress) -> Calibration:
    """Measure and fit.

    Raises:
        BusyError: the worker served others before or during the measurement.
        CalibrationError: it cannot be measured, or the measurements do not determine a model.
    """
    async with Client(
        options.url, options.api_key, options.timeout_s, options.pause_s, options.way
    ) as client:
        worker = await look_at(client)
        machine = options.machine or worker.machine
        if machine is None:
            raise CalibrationError("the worker does not report its machine; set --machine")
        client.serve_as(worker.model)
        await check_idle(client)
        limits = _limits(options, worker)
        seed = random.SystemRandom().getrandbits(64) if options.seed is None else options.seed
        texts = Texts(seed)
        before = await load_of(client)
        await texts.learn(client)
        observations = await _measure(client, texts, limits, options, progress)
        checked = await _check_alone(client, before)
    return Calibration(worker, machine, observations, fit_model(observations), checked)


def _limits(options: Options, worker: Worker) -> Limits:
    chunk_tokens = options.chunked_prefill_size or worker.chunked_prefill_size
    if chunk_tokens is None:
        raise CalibrationError(
            "the worker does not report its prefill chunks; set --chunked-prefill-size"
        )
    capacity_tokens = options.capacity_tokens or worker.capacity_tokens
    if capacity_tokens is None:
        raise CalibrationError(
            "the worker does not report the size of its KV pool; set --capacity-tokens"
        )
    return Limits(
        longest_prompt=min(options.longest_prompt, worker.context_length or capacity_tokens),
        capacity_tokens=capacity_tokens,
        most_together=min(options.most_together, worker.max_running_requests or 2**31),
        chunk_tokens=chunk_tokens,
    )


async def _measure(
    client: Client, texts: Texts, limits: Limits, options: Options, progress: Progress
) -> list[Observation]:
    """Runs every measurement once, then all again, so that a passing disturbance hits one of
    each."""
    measurements = design(limits)
    if not measurements:
        raise CalibrationError(
            f"prompts of at most {limits.longest_prompt} tokens, in a pool of"
            f" {limits.capacity_tokens}, are too short to measure anything"
        )
    await _warm_up(client, texts, measurements, limits)
    seen: dict[str, list[Observation]] = {}
    repeat = options.repeat
    for turn in range(repeat):
        for number, measurement in enumerate(measurements):
            progress(turn * len(measurements) + number, repeat * len(measurements))
            for observation in await measurement.measure(client, texts, limits):
                seen.setdefault(observation.what, []).append(observation)
    progress(repeat * len(measurements), repeat * len(measurements))
    return [middle(repetitions) for repetitions in seen.values()]


async def _warm_up(
    client: Client, texts: Texts, measurements: list[Measurement], limits: Limits
) -> None:
    """The first request of a process also pays for what it loads; the first of each kind may."""
    for kind in dict.fromkeys(type(one) for one in measurements):
        await next(one for one in measurements if type(one) is kind).measure(client, texts, limits)


async def _check_alone(client: Client, before: Load) -> bool:
    """Whether the worker's counters show that only our prompts were served; False if it has no
    known counters. Raises BusyError if others were served."""
    if before.prompt_tokens is None:
        return False
    asked = client.prompt_tokens
    served = 0.0
    deadline = asyncio.get_running_loop().time() + _COUNTERS_S
    while served < asked and asyncio.get_running_loop().time() < deadline:
        load = await load_of(client)
        served = (load.prompt_tokens or 0.0) - before.prompt_tokens
        await asyncio.sleep(0.05)
    if served != asked:
        raise BusyError(
            f"the worker served {served:.0f} prompt tokens, but only {asked} were sent from here:"
            " others used it, which distorts its times; measure again while nobody else does"
        )
    return True
