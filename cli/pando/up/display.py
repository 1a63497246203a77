"""What `pando up` shows: its parts' log lines, what to do when it is ready, and a live table."""

import asyncio
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from pando.logs import LogSettings, is_human
from pando.up.process import Relay, log_record
from pando.up.router_client import ReplicaRow, RouterClient

REFRESH_S = 0.5
STATE_STYLES = {"ready": "green", "starting": "yellow", "draining": "yellow"}


def log_relay(log: LogSettings) -> Relay:
    """Passes the parts' output on to standard error, with the name of the part: in front of the
    line for people, inside the JSON object for machines.

    Redis's lines are shown for debugging only: at each start it warns of what matters not here.
    """

    def shown(name: str) -> bool:
        return name != "redis" or log.level == "debug"

    def relay_for_people(name: str, line: str) -> None:
        if shown(name):
            print(f"{name:>9} | {line}", file=sys.stderr, flush=True)

    def relay_for_machines(name: str, line: str) -> None:
        if shown(name):
            print(json.dumps({"process": name, **log_record(line)}), file=sys.stderr, flush=True)

    return relay_for_people if is_human(log) else relay_for_machines


def welcome(url: str, model: str, seconds: dict[str, float]) -> str:
    """What to do now, and what starting took."""
    took = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": "What is a list?"}],
            "max_tokens": 48,
        }
    )
    return (
        f"{model} is served at {url}/v1 (ready after: {took})\n\n"
        f"  curl {url}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"    -d '{body}'\n\n"
        "Ctrl-C ends it."
    )


async def show_table(router: RouterClient, console: Console) -> None:
    """Keep a table of the replicas at the bottom of the terminal until cancelled; log lines pass
    above it."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            fleet = await router.fleet()
            if fleet is None:
                live.update(table([], "waiting for the router"), refresh=True)
            else:
                note = "" if fleet.redis == "up" else "Redis is away"
                live.update(table(fleet.replicas, note), refresh=True)
            await asyncio.sleep(REFRESH_S)


def table(replicas: Sequence[ReplicaRow], note: str) -> Table:
    """KV tokens in use by running requests, and kept for requests to come, of the pool's size."""
    result = Table(caption=note or None, caption_style="red")
    for column in ("replica", "state"):
        result.add_column(column)
    for column in ("running", "waiting", "KV used", "KV cached", "KV tokens", "hit rate"):
        result.add_column(column, justify="right")
    for row in replicas:
        style = STATE_STYLES.get(row.state, "red")
        result.add_row(
            row.replica,
            f"[{style}]{row.state}[/{style}]",
            str(row.running),
            str(row.waiting),
            _share(row.pinned_tokens, row.capacity_tokens),
            _share(row.cached_tokens, row.capacity_tokens),
            f"{row.capacity_tokens:,}",
            "-" if row.hit_rate is None else f"{row.hit_rate:.0%}",
        )
    return result


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
