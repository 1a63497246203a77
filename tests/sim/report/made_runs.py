"""Artificial runs from a seed, for tests of reports; no fleet is simulated."""

import math
import random

from pando_sim.records import Event, Outcome, Run, Sample, ScalingStep, Served
from pando_sim.report import About, Digest, digest

ABOUT = About(
    command="pando sim small.jsonl --pool pool.yaml --seed 7",
    pando_version="0.1.0",
    trace="small.jsonl",
    trace_summary="small: 4,000 requests in 33 min",
    unplayed={"it is not JSON": 1200},
    pool="pool.yaml",
    pool_summary="llama: 4 replicas of 2 GPUs",
    cost_model="made up for tests",
    seed=7,
    slow_ttft_s=2.0,
    slow_gap_s=0.05,
    gpus_per_replica=2,
)


def made_run(
    policy: str,
    *,
    requests: int = 4000,
    slowness: float = 1.0,
    scaling: str = "none",
    faults: bool = False,
    seed: int = 7,
) -> Run:
    """Times grow with `slowness`; if it is above 2, one of 200 requests is refused."""
    rng = random.Random(f"{seed}/{policy}/{scaling}")
    run = Run(
        policy=policy,
        scaling=scaling,
        seed=seed,
        cost_model=ABOUT.cost_model,
        settings={"worker": {"page_size": 16}, "policy": policy, "seed": seed},
        checks={"tokens conserved": requests, "leases released": 4},
        wall_s=3.2,
    )
    for number in range(requests):
        run.served.append(_served(number, rng, slowness))
    last = max(one.end_s for one in run.served)
    for at in _moments(last):
        run.samples.append(_sample(at, last, run, rng, scaling != "none"))
    if scaling != "none":
        run.steps = [
            ScalingStep(at_s=last * 0.2, before=4, after=6, reason="pressure", ready_s=last * 0.25),
            ScalingStep(
                at_s=last * 0.7,
                before=6,
                after=4,
                reason="pressure 0.40 under target 0.70 on 6 ready replicas: wants 4",
                recomputed_tokens=rng.randint(2000, 90_000),
                prefilled_tokens=rng.randint(0, 65_536),
                delayed_requests=rng.randint(0, 30),
            ),
        ]
    if faults:
        run.events = [
            Event(at_s=last * 0.4, what="replica-2 dies"),
            Event(at_s=last * 0.6, what="Redis is away for 10 s"),
        ]
    return run


def made_digest(policy: str, about: About = ABOUT, **how: object) -> Digest:
    return digest(
        made_run(policy, **how),  # type: ignore[arg-type]
        slow_ttft_s=about.slow_ttft_s,
        slow_gap_s=about.slow_gap_s,
        gpus_per_replica=about.gpus_per_replica,
    )


def served(number: int = 0, **what: object) -> Served:
    """One request: arrives at 0, first token at 1, ten tokens in all, ends at 1.9."""
    usual: dict[str, object] = {
        "number": number,
        "arrival_s": 0.0,
        "placed_s": 0.0,
        "first_token_s": 1.0,
        "end_s": 1.9,
        "replica": "replica-0",
        "tries": 1,
        "prompt_tokens": 100,
        "matched_tokens": 50,
        "cached_tokens": 40,
        "output_tokens": 10,
        "longest_gap_s": 0.2,
        "outcome": Outcome.FINISHED,
    }
    return Served(**(usual | what))  # type: ignore[arg-type]


def _served(number: int, rng: random.Random, slowness: float) -> Served:
    arrival = number / 2 + rng.random()
    prompt = round(rng.lognormvariate(7, 1))
    cached = min(prompt, round(prompt * rng.betavariate(2, 2 * slowness)) // 16 * 16)
    if slowness > 2 and not rng.randrange(200):
        return served(
            number,
            arrival_s=arrival,
            placed_s=math.nan,
            first_token_s=math.nan,
            end_s=arrival + 60,
            replica="",
            tries=0,
            prompt_tokens=prompt,
            matched_tokens=0,
            cached_tokens=0,
            output_tokens=0,
            longest_gap_s=0.0,
            outcome=Outcome.REFUSED,
        )
    wave = 1 + math.sin(number / 300)
    first = arrival + slowness * wave * rng.lognormvariate(-1.5, 0.8) + (prompt - cached) / 20_000
    output = rng.randint(1, 200)
    gap = 0.02 * slowness * rng.lognormvariate(0, 0.3)
    return served(
        number,
        arrival_s=arrival,
        placed_s=arrival + 0.001,
        first_token_s=first,
        end_s=first + gap * (output - 1),
        replica=f"replica-{min(3, int(rng.expovariate(0.5)))}",
        prompt_tokens=prompt,
        matched_tokens=min(prompt, cached + 16),
        cached_tokens=cached,
        output_tokens=output,
        longest_gap_s=gap * 3 if output > 1 else 0.0,
    )


def _moments(last: float) -> list[float]:
    return [5.0 * number for number in range(int(last / 5) + 1)]


def _sample(at: float, last: float, run: Run, rng: random.Random, scales: bool) -> Sample:
    replicas = 6 if scales and 0.2 * last < at < 0.7 * last else 4
    capacity = replicas * 100_000
    pinned = int(capacity * (0.3 + 0.2 * math.sin(at / 150)))
    return Sample(
        at_s=at,
        replicas=replicas,
        ready=replicas,
        draining=0,
        queued=max(0, round(10 * math.sin(at / 150) + rng.random())),
        waiting=rng.randint(0, 4),
        running=20,
        capacity_tokens=capacity,
        pinned_tokens=pinned,
        cached_tokens=min(capacity - pinned, int(at * 500)),
        arrived=int(at * 2),
        finished=int(at * 2),
        prompt_tokens=0,
        cached_prompt_tokens=0,
        output_tokens=0,
        replica_seconds=(run.samples[-1].replica_seconds if run.samples else 0) + 5 * replicas,
    )
