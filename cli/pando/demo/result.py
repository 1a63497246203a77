"""What a demo shows of its two outcomes: a table and a verdict."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from pando.demo.measure import Outcome


def show(round_robin: Outcome, cache_aware: Outcome, kv_tokens: int) -> int:
    """Returns the exit code: 0 if cache-aware routing was better.

    Args:
        kv_tokens: of each worker
    """
    console = Console()
    console.print(_table({"round_robin": round_robin, "cache_aware": cache_aware}, kv_tokens))
    return _verdict(round_robin, cache_aware, console)


def _table(outcomes: Mapping[str, Outcome], kv_tokens: int) -> Table:
    table = Table(
        title="the same conversations, two ways to choose a replica",
        caption=f"{kv_tokens:,} KV tokens a worker: together they hold it all once, not twice",
    )
    table.add_column("policy")
    for column in ("prompt", "cached", "share", "TTFT mean", "TTFT p99", "total"):
        table.add_column(column, justify="right")
    for policy, outcome in outcomes.items():
        table.add_row(
            policy,
            f"{outcome.prompt_tokens:,}",
            f"{outcome.cached_tokens:,}",
            f"{outcome.hit_rate:.0%}",
            f"{1000 * outcome.mean_ttft_s:.0f} ms",
            f"{1000 * outcome.p99_ttft_s:.0f} ms",
            f"{outcome.seconds:.1f} s",
        )
    return table


def _verdict(round_robin: Outcome, cache_aware: Outcome, console: Console) -> int:
    more_cached = cache_aware.hit_rate > round_robin.hit_rate
    sooner = cache_aware.mean_ttft_s < round_robin.mean_ttft_s
    if more_cached and sooner:
        ratio = round_robin.mean_ttft_s / cache_aware.mean_ttft_s
        console.print(f"cache_aware is better: first tokens {ratio:.1f} times sooner in the mean")
        return 0
    console.print("cache_aware is not better than round_robin here")
    return 1
