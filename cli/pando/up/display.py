"""What `pando up` shows: what to do when it is ready, and a live table of the replicas."""

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # its HTTP client is imported once the parts start
    from pando.up.router_client import ReplicaRow, RouterClient

REFRESH_S = 0.5
BAR_WIDTH = 10
STATE_STYLES = {"ready": "green", "starting": "yellow", "draining": "yellow"}


def welcome(url: str, model: str, seconds: dict[str, float], *, chats: bool, with_key: bool) -> str:
    """What to do now, and what starting took.

    Args:
        chats: whether the model has a chat template
        with_key: whether requests need an API key
    """
    took = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    question = "What is the largest ocean on Earth?"
    asked = {"messages": [{"role": "user", "content": question}]} if chats else {"prompt": question}
    path = "/v1/chat/completions" if chats else "/v1/completions"
    body = json.dumps({"model": model, **asked, "max_tokens": 48})
    key = '    -H "authorization: Bearer $KEY" \\\n' if with_key else ""
    talk = (
        f"Talk to it at {url}/chat; {url}/dashboard shows the fleet.\n"
        if chats
        else f"It has no chat template: it completes texts. {url}/dashboard shows the fleet.\n"
    )
    return (
        f"{model} is served at {url}/v1 (ready after: {took})\n\n"
        f"  curl {url}{path} -H 'content-type: application/json' \\\n"
        f"{key}    -d '{body}'\n\n"
        f"{talk}Ctrl-C ends it."
    )


def _state(row: "ReplicaRow") -> str:
    """With a bar while it starts, where it is known how far it has come."""
    if row.state != "starting" or not row.stage:
        return row.state
    full = round(BAR_WIDTH * row.stage_done)
    bar = f" {'━' * full}{'─' * (BAR_WIDTH - full)} {row.stage_done:.0%}" if row.stage_done else ""
    return f"{row.state}: {row.stage}{bar}"


async def show_table(router: "RouterClient", console: Console) -> None:
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


def table(replicas: "Sequence[ReplicaRow]", note: str) -> Table:
    """KV tokens: in use by running requests, kept for requests to come, and what the pool holds."""
    result = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # fits 80 columns
    result.caption, result.caption_style = note or None, "red"
    for column in ("replica", "state"):
        result.add_column(column, no_wrap=True)
    for column in ("running", "waiting", "KV used", "KV cached", "KV size", "hit rate"):
        result.add_column(column, justify="right", no_wrap=True)
    for row in replicas:
        result.add_row(
            row.replica,
            Text(_state(row), STATE_STYLES.get(row.state, "red")),
            str(row.running),
            str(row.waiting),
            f"{row.pinned_tokens:,}",
            f"{row.cached_tokens:,}",
            f"{row.capacity_tokens:,}",
            "-" if row.hit_rate is None else f"{row.hit_rate:.0%}",
        )
    return result
