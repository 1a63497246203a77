"""The cost of a radix cache: match, insert and evict of 100k-token sequences among a million
tokens.

Run: python -m bench.engine.radix_cache [--out docs/benchmarks/radix-cache.md]. Compares Pando's
cache with SGLang's original design (`bench/engine/radix/list_cache.py`). All run in turn in one
process, on the same sequences. Times are CPU times of the only thread, so other work on the machine
matters less.
"""

import argparse
import gc
import platform
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bench.engine.radix.contestants import Contestant, Lists, Pando
from bench.engine.radix.workloads import TREE_TOKENS, Timings, operations, serving
from pando_worker.server.machine import machine

ROUNDS = 3
POLICIES = ("lru", "lfu", "fifo")
RUNS = {  # with the share of long documents among requests
    "chats of 64 to 1,024 new tokens": 0.0,
    "chats and 3 % documents of 4,096 to 32,768": 0.03,
    "documents alone": 1.0,
}

Workload = Callable[[Contestant, int, int], Timings]


def rounds(workload: Workload, capacity: int, page_size: int) -> dict[str, list[Timings]]:
    """Timings of each contestant, by its name."""
    timings: dict[str, list[Timings]] = {}
    for seed in range(ROUNDS):
        contestants: dict[str, Contestant] = {"lists": Lists(capacity, page_size)}
        contestants |= {policy: Pando(capacity, page_size, policy) for policy in POLICIES}
        for name in list(contestants):
            gc.collect()
            gc.disable()
            measured = workload(contestants.pop(name), seed, page_size)
            gc.enable()
            timings.setdefault(name, []).append(measured)
    return timings


def table(head: str, timings: dict[str, list[Timings]]) -> str:
    lines = [
        f"| {head} | lists | Pando | ratio (least) | lfu | fifo |",
        "|---|---|---|---|---|---|",
    ]
    lists = timings["lists"]

    def median(name: str, row: str) -> str:
        return f"{statistics.median(each[row] for each in timings[name]) * 1e6:,.1f}"

    def ratios(name: str, row: str) -> list[float]:
        return [old[row] / new[row] for old, new in zip(lists, timings[name], strict=True)]

    for row in lists[0]:
        lru = ratios("lru", row)
        others = [f"{statistics.median(ratios(name, row)):,.1f}" for name in POLICIES[1:]]
        lines.append(
            f"| {row} | {median('lists', row)} | {median('lru', row)} |"
            f" {statistics.median(lru):,.1f} ({min(lru):,.1f}) | {' | '.join(others)} |"
        )
    return "\n".join(lines)


TEXT = """# What the radix cache costs

    python -m bench.engine.radix_cache --out docs/benchmarks/radix-cache.md

CPU time on trees of about a million tokens, of Pando's cache and of SGLang's original design,
written anew for this comparison (`bench/engine/radix/list_cache.py`): lists of ints as keys,
compared token by token; an eviction first collects all leaves of the tree into a heap, then takes
whole leaves and frees each on its own in a mask over the pool, as SGLang 0.2.6 did; its slots are
torch tensors, here on the CPU. Taking pages is not timed for either. Medians of {rounds} rounds,
each on fresh trees, all in turn on the same sequences. *Ratio* is the median of the rounds' ratios
for `lru`, with the least of them in brackets; `lfu` and `fifo` are the lists' times, which knew
`lru` only, by Pando's with these policies.

## One operation

3,840 prompts of 1,088 to 1,472 tokens that share 16 system prompts, and the long sequences. *Room
for n tokens, a step* is the mean over steps that each take n tokens from a full pool. Both evict
only when too little is free: the lists then have what their last leaf left over, Pando evicts at
least 0.4 % of the pool at once. With `fifo` the last row is 390 prompts again, not one sequence.

{operations}

## A run

A full pool of a million tokens; 1,500 steps of 64 streams, of which every fourth runs a chunk of
2,048 prompt tokens too. Half of the requests continue one of the last 200, the others begin with
one of 16 system prompts of 1,024 tokens. Times are totals of the run, but for the longest eviction.

{runs}

## Where evictions are 20 times faster, and where they are not

The lists pay for every leaf of the tree at each eviction, Pando only for those that go. So the
ratio grows with the leaves in the tree, and falls with those evicted at once:

- Among thousands of leaves, room for the 16 to 4,096 tokens of a step costs about 20 to 600 times
  less with `lru`; a run of chats, all its evictions together, about 40 times less. There the goal
  of 20 holds. `fifo` keeps a heap and is under it at 4,096 tokens.
- Long documents make fewer leaves, and there is little to collect: with 3 % of them among chats it
  is about 15, and where a million tokens are 40 documents the two designs cost the same, 10 µs a
  step.
- 100,000 tokens at once are 390 leaves that both have to take out, and 100,000 pages that both have
  to mark as free. That is 3 to 7 times faster: the lists spend about 13 µs a leaf, Pando 3 to 5.
  Twenty times less would be under 1 µs for a leaf and its 256 pages; marking the pages alone takes
  about that, and a leaf is some ten Python objects, most not in the processor's caches. It happens
  once in a prompt of 100,000 tokens, which computes for seconds.

An insert of new tokens is dearer than with lists, which keep the caller's list and copy nothing.
Pando copies tokens and pages, so that no Python object stands for a token, and hashes each block of
64 tokens to notice evictions of what is asked for again.

Other work kept both cores busy meanwhile, which lengthens all times.

{machine}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the page there instead of printing it")
    out: Path | None = parser.parse_args().out
    torch.set_num_threads(1)  # so that this thread's CPU time is the total
    parts = {
        "operations": [
            table(
                f"page size {page_size}, µs",
                rounds(operations, TREE_TOKENS * 3 // 2 // page_size * page_size, page_size),
            )
            for page_size in (1, 16)
        ],
        "runs": [
            table(f"{name}, µs", rounds(partial(serving, long_share=share), TREE_TOKENS, 1))
            for name, share in RUNS.items()
        ],
    }
    joined = {name: "\n\n".join(tables) for name, tables in parts.items()}
    described = (
        f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__},"
        f" on one thread of {machine('cpu', 1)}"
    )
    text = TEXT.format(rounds=ROUNDS, machine=described, **joined)
    if out:
        out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
