"""The loads: the traces that a day consists of, and the replicas that serve them.

Each trace is some hours of requests at the day's full rate; `Day` repeats and stretches it.
"""

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from xxhash import xxh3_64_intdigest

from pando_sim.cost import load
from pando_sim.cost.files import render
from pando_sim.traces import Day

TROUGH, BURST_FACTOR, BURST_S = 0.15, 4.0, 300.0
HOURS_A_BURST = 2.0

# Conversations: Mooncake's, on a sixth of an H100, so that a day of some ten thousand requests
# needs several replicas.
WHOLE = "h100-llama-3.1-8b-fp8"
SLICES = 6
MEMORY_BYTES, WORKSPACE_BYTES = 0.95 * 80e9, 4e9  # of a whole GPU; from the cost model's source
WEIGHTS_BYTES = 9.08e9
CONVERSATION_CHUNK = 512  # tokens; a step with such a chunk takes 40 ms in a slice
LONGEST_PROMPT = 16_384  # tokens; a longer one cannot have a first token within 2 s on a slice
MOMENT_S = 3.0  # resolution of the trace's times
KEPT_SHARE = 0.14  # of the conversations

# Answers: synthetic, like those of a model that reasons at length.
ANSWERS_MODEL = "h200-llama-3.3-70b-fp8"
ANSWERS_ROOM = 32_768  # KV tokens of a replica
ANSWERS_REQUESTS = 12  # at a replica, from all routers: with their answers they fill its KV pool
ANSWERS_CHUNK = 512
ANSWERS_S = 7_200.0
ANSWERS_PER_S = 0.25
PROMPT_TOKENS, ANSWER_TOKENS, SIGMA = 200.0, 1_500.0, 0.7  # medians; sigma of the logarithms


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one day."""

    name: str
    day: int  # seed of everything random: bursts, arrivals
    trace: Path
    cost_model: str  # a name, or a file's path
    capacity_tokens: int  # KV room of a replica
    chunk_tokens: int  # of a prefill step
    most_requests: int  # at a replica; more wait in the routers
    engine: dict[str, object]  # further settings of a worker
    knobs: dict[str, tuple[float, ...]]
    """The settings of each scaler's knob, in the order in which they are tried."""


Line = dict[str, object]


def curve(load: Load, hours: float) -> Day:
    """A load that rises and falls once, and about every two hours is fourfold for five minutes."""
    bursts = round(hours / HOURS_A_BURST)
    return Day(
        hours=hours,
        trough=TROUGH,
        bursts=bursts,
        burst_factor=BURST_FACTOR,
        burst_s=BURST_S,
        seed=load.day,
    )


def slice_model(folder: Path, slices: int) -> Path:
    """The file of a replica: all times are those of the whole GPU, times `slices`."""
    file = load(WHOLE).file
    times = {name: value * slices for name, value in msgspec.structs.asdict(file.step).items()}
    times["free_tokens"] = file.step.free_tokens  # a ratio of two times
    sliced = msgspec.structs.replace(
        file,
        name=f"{file.name}-slice",
        machine=f"1/{slices} of {file.machine}",
        step=type(file.step)(**times),
        worker=None,
        quality=None,
    )
    path = folder / f"{sliced.name}.json"
    path.write_bytes(render(sliced))
    return path


def slice_capacity(slices: int) -> int:
    """KV tokens that a slice's memory holds besides the weights."""
    per_token = load(WHOLE).kv_bytes_per_token
    return int(((MEMORY_BYTES - WORKSPACE_BYTES) / slices - WEIGHTS_BYTES) / per_token)


def conversation(
    day: int, source: Path, folder: Path, *, slices: int = SLICES, share: float = KEPT_SHARE
) -> Load:
    """Prompts of thousands of tokens, answers of hundreds: computing is scarcer than KV memory.

    Uses a part of Mooncake's conversations, each whole, without those that have a prompt above
    `LONGEST_PROMPT`. It is the same part every day.

    Args:
        slices: a replica is such a part of a GPU
        share: of the conversations
    """
    with gzip.open(source) as file:
        rows = [json.loads(line) for line in file]
    conversations = defaultdict(list)
    for row in rows:
        ids = row["hash_ids"]
        conversations[ids[min(1, len(ids) - 1)]].append(row)  # all share the first block
    kept = []
    for name, turns in conversations.items():
        is_drawn = xxh3_64_intdigest(str(name).encode()) < share * 2**64
        if is_drawn and all(turn["input_length"] <= LONGEST_PROMPT for turn in turns):
            kept += turns
    draw = random.Random(day)
    for row in kept:
        row["timestamp"] += 1000 * MOMENT_S * draw.random()
    path = write(kept, folder / f"conversation-{day}.jsonl.gz")
    return Load(
        name="conversation",
        day=day,
        trace=path,
        cost_model=str(slice_model(folder, slices)),
        capacity_tokens=slice_capacity(slices),
        chunk_tokens=CONVERSATION_CHUNK,
        most_requests=256,
        engine={},
        knobs={
            "pando": (0.7, 0.4, 0.55, 0.25),
            "pando, queueWait": (0.7, 0.4),
            "pando, latency": (95.0, 99.0, 90.0),
            "dynamo_planner": (1.0, 0.8, 0.6),
            "hpa_queue": (1.0, 0.25, 4.0),
            "hpa_kv": (0.2, 0.4, 0.6),
            "knative": (3.0, 1.5, 6.0),
        },
    )


def answers(day: int, folder: Path) -> Load:
    """Long answers to short prompts with little KV memory, which is scarcer than computing."""
    draw = random.Random(day)
    rows: list[Line] = []
    at_s = 0.0
    while (at_s := at_s + draw.expovariate(ANSWERS_PER_S)) < ANSWERS_S:
        prompt, answer = (
            round(draw.lognormvariate(0.0, SIGMA) * median)
            for median in (PROMPT_TOKENS, ANSWER_TOKENS)
        )
        rows.append(
            {"timestamp": round(1000 * at_s), "input_length": prompt, "output_length": answer}
        )
    path = write(rows, folder / f"answers-{day}.jsonl.gz")
    return Load(
        name="answers",
        day=day,
        trace=path,
        cost_model=ANSWERS_MODEL,
        capacity_tokens=ANSWERS_ROOM,
        chunk_tokens=ANSWERS_CHUNK,
        most_requests=ANSWERS_REQUESTS,
        # No two prompts begin alike; a full cache makes a day take ten times as long.
        engine={"radix_cache": False},
        knobs={
            "pando": (0.7, 0.4, 0.55, 0.25),
            "pando, queueWait": (0.7, 0.4),
            "pando, latency": (95.0, 99.0, 90.0),
            "dynamo_planner": (1.0, 0.8, 0.6),
            "hpa_queue": (1.0, 0.25, 3.0),
            "hpa_kv": (0.4, 0.25, 0.55),
            "knative": (9.0, 6.0, 12.0),
        },
    )


def write(rows: Iterable[Line], path: Path) -> Path:
    """Writes rows sorted by time; the same rows give the same file."""
    ordered = sorted(rows, key=lambda row: float(str(row["timestamp"])))
    text = "".join(json.dumps(row) + "\n" for row in ordered)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path
