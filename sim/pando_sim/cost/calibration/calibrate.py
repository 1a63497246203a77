"""`calibrate`: from the URL of a worker to its cost model, with the errors that remain."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pando_sim.cost.calibration.client import Client, Way
from pando_sim.cost.calibration.design import Limits, Measurement, Texts, design
from pando_sim.cost.calibration.errors import BusyError, CalibrationError, UndeterminedError
from pando_sim.cost.calibration.fitting import Fitted, fit_model
from pando_sim.cost.calibration.observations import Observation, middle
from pando_sim.cost.calibration.worker import Load, Worker, check_idle, load_of, look_at

_COUNTERS_S = 2.0  # until the worker's counters include the last requests
_FURTHER_ROUNDS = 4  # at most, beyond those asked for, while these do not determine a model

Progress = Callable[[int, int], None]
"""Called with the number of measurements done and the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    url: str
    way: Way | None = None  # to the worker, if not direct; its delays are measured, too
    api_key: str | None = None
    machine: str | None = None  # in words, if the worker does not report its machine
    repeat: int = 5  # times to measure each, or more if needed; the median is used
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
    rounds: int  # in which each of them was measured
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
        rounds = await _Rounds.begin(client, texts, limits)
        await rounds.measure(options.repeat, progress)
        checked = await _check_alone(client, before)
        while (fitted := _fitted(rounds, options.repeat + _FURTHER_ROUNDS)) is None:
            await rounds.measure(1, progress)
            checked = await _check_alone(client, before)
    return Calibration(worker, machine, rounds.observations, rounds.done, fitted, checked)


def _fitted(rounds: "_Rounds", most: int) -> Fitted | None:
    """None if another round may determine the model, of `most` in all. Raises UndeterminedError."""
    try:
        return fit_model(rounds.observations)
    except UndeterminedError:
        if rounds.done >= most:
            raise
        return None


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


class _Rounds:
    """Each runs every measurement once, so that a passing disturbance hits one of each."""

    def __init__(self, client: Client, texts: Texts, limits: Limits) -> None:
        self._client, self._texts, self._limits = client, texts, limits
        self._measurements = design(limits)
        self._seen: dict[str, list[Observation]] = {}
        self.done = 0

    @classmethod
    async def begin(cls, client: Client, texts: Texts, limits: Limits) -> Self:
        """Raises CalibrationError."""
        rounds = cls(client, texts, limits)
        if not rounds._measurements:
            raise CalibrationError(
                f"prompts of at most {limits.longest_prompt} tokens, in a pool of"
                f" {limits.capacity_tokens}, are too short to measure anything"
            )
        await _warm_up(client, texts, rounds._measurements, limits)
        return rounds

    @property
    def observations(self) -> list[Observation]:
        """The medians so far."""
        return [middle(repetitions) for repetitions in self._seen.values()]

    async def measure(self, rounds: int, progress: Progress) -> None:
        each = len(self._measurements)
        total = (self.done + rounds) * each
        for _ in range(rounds):
            for number, measurement in enumerate(self._measurements):
                progress(self.done * each + number, total)
                for one in await measurement.measure(self._client, self._texts, self._limits):
                    self._seen.setdefault(one.what, []).append(one)
            self.done += 1
        progress(total, total)


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
