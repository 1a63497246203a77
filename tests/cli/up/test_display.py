"""What `pando up` shows on a terminal while it starts."""

import io

from rich.console import Console

from pando.up.display import table
from pando.up.router_client import ReplicaRow


def row(state: str, stage: str = "", stage_done: float = 0.0) -> ReplicaRow:
    return ReplicaRow(
        replica="worker-0",
        url="http://127.0.0.1:1",
        model="m",
        endpoints=(),
        state=state,
        stage=stage,
        stage_done=stage_done,
        running=0,
        waiting=0,
        capacity_tokens=0,
        pinned_tokens=0,
        cached_tokens=0,
        hit_rate=None,
    )


def shown(one: ReplicaRow) -> str:
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as captured:
        console.print(table([one], ""))
    return captured.get()


def test_a_worker_that_starts_shows_what_it_does_with_a_bar() -> None:
    assert "starting: weights ━━━━────── 40%" in shown(row("starting", "weights", 0.4))
    assert "starting: kernels " in shown(row("starting", "kernels"))
    assert "ready " in shown(row("ready", "graphs", 1.0))
    assert "graphs" not in shown(row("ready", "graphs", 1.0))
