"""Page tables kept elsewhere by changes: after each step they have the pages of its rows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.batch import ForwardBatch
from pando_worker.pools import Pools
from pando_worker.ranks.page_tables import RankPageTables, without_tables
from tests.examples import examples
from tests.worker.scheduler.hash_model import HashRunner
from tests.worker.scheduler.world import World

PAGE_SIZE = 4


class Mirrored:
    """A runner that compares each batch's tables with those of another rank."""

    def __init__(self, pools: Pools, rows: int) -> None:
        self._runner = HashRunner(
            pools.capacity_tokens,
            host_slots=pools.host_pages * PAGE_SIZE,
            window=pools.window,
            window_slots=pools.window_pages * PAGE_SIZE,
            host_window_slots=pools.host_window_pages * PAGE_SIZE,
        )
        self._tables = RankPageTables(rows, pools.context_length, PAGE_SIZE)
        self.sent = self.read = 0

    def launch(self, batch: ForwardBatch):  # type: ignore[no-untyped-def]
        assert batch.page_changes is not None
        sent = without_tables(batch)
        assert sent.page_table.size == 0
        other = replace(sent)
        self._tables.complete(other)
        for row, count in enumerate(-(-batch.seq_lens // PAGE_SIZE)):
            own = batch.page_table[row, :count]
            assert other.page_table[row, :count].tolist() == own.tolist()
            if batch.window_table is not None and other.window_table is not None:
                seen = batch.window_table[row, :count]
                held = seen >= 0  # the step reads these
                assert (other.window_table[row, :count][held] == seen[held]).all()
        self.sent += len(batch.page_changes.rows)
        self.read += int((-(-batch.seq_lens // PAGE_SIZE)).sum())
        return self._runner.launch(batch)


@pytest.mark.parametrize("window", [0, 10])
@settings(max_examples=examples(25))
@given(data=st.data())
def test_other_ranks_have_the_pages_of_each_step(window: int, data: st.DataObject) -> None:
    """With prefixes from the cache and from the host, aborts, and retraction."""
    pools = Pools(
        capacity_tokens=30 * PAGE_SIZE,
        context_length=80,
        window=window,
        window_pages=24 if window else 0,
        host_pages=20,
        host_window_pages=20 if window else 0,
        host_page_bytes=PAGE_SIZE,
        keeps_tables=True,
    )
    runner = Mirrored(pools, rows=4)
    world = World(
        page_size=PAGE_SIZE, pools=pools, runner=runner, max_running=4, chunked_prefill_size=16
    )
    for index in range(data.draw(st.integers(1, 12))):
        shared, own = data.draw(st.integers(0, 30)), data.draw(st.integers(1, 12))
        new = data.draw(st.integers(1, 20))
        world.send(f"r{index}", [*range(shared), *([100 + index] * own)], max_new_tokens=new)
        for _ in range(data.draw(st.integers(0, 6))):
            world.step()
        if data.draw(st.integers(0, 4)) == 0:
            world.abort(f"r{index}")
    world.run()


def test_a_decode_sends_a_page_in_many_steps() -> None:
    pools = Pools(capacity_tokens=4096, context_length=2048, keeps_tables=True)
    runner = Mirrored(pools, rows=4)
    world = World(page_size=PAGE_SIZE, pools=pools, runner=runner, max_running=4)
    world.send("a", range(1000), max_new_tokens=200)
    world.run()
    assert runner.sent == 300
    assert runner.read > 200 * 250
