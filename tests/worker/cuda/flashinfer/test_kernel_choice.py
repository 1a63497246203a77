"""Which kernel computes the attention of which rows."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from pando_worker.attention.flashinfer.kernel_choice import (
    Estimate,
    Heads,
    KernelTable,
    Measured,
    Point,
    choose_by,
    read_table,
    table_path,
)

HEADS = Heads(heads=32, kv_heads=8, head_dim=128, v_head_dim=128)
MULTIPROCESSORS = 132


def is_fa3(table: KernelTable | None, *rows: tuple[int, int], heads: Heads = HEADS) -> bool:
    """For rows of so many new tokens and keys."""
    new, keys = np.array(rows, dtype=np.int32).T
    return choose_by(table, heads, MULTIPROCESSORS)(new, keys)


def test_long_prefills_run_with_flash_attention_3_and_short_suffixes_do_not() -> None:
    assert is_fa3(None, (4096, 4096))
    assert is_fa3(None, (2048, 100_000))
    assert is_fa3(None, *[(512, 512)] * 16)
    assert not is_fa3(None, (16, 32_768)), "one multiprocessor would read all keys"
    assert not is_fa3(None, *[(16, 4096)] * 64), "its tiles would be an eighth full"
    assert not is_fa3(None, (64, 64)), "most multiprocessors would idle"


def test_a_long_row_among_short_ones_decides() -> None:
    assert is_fa3(None, *[(4, 200)] * 20, (4096, 8192))
    assert not is_fa3(None, *[(128, 128)] * 8, (4, 120_000))


def test_few_heads_want_keys_to_be_split_longer() -> None:
    one = Heads(heads=4, kv_heads=1, head_dim=128, v_head_dim=128)  # a rank of eight
    assert is_fa3(None, (1024, 8192)) and not is_fa3(None, (1024, 8192), heads=one)


def test_large_contexts_do_not_overflow() -> None:
    assert is_fa3(None, *[(8192, 1_000_000)] * 256)
    assert not Estimate(HEADS, MULTIPROCESSORS)(np.array([1] * 4096), np.array([2_000_000] * 4096))


TABLE = KernelTable(
    device="a GPU",
    measured=[
        Measured(
            HEADS,
            [
                Point(rows=1, new=16, keys=16384, fa2_us=9, fa3_us=4),  # not as estimated
                Point(rows=1, new=4096, keys=4096, fa2_us=9, fa3_us=4),
                Point(rows=64, new=16, keys=1024, fa2_us=2, fa3_us=4),
            ],
        )
    ],
)


def test_a_measured_table_decides_by_the_nearest_call() -> None:
    assert is_fa3(TABLE, (20, 20_000)) and not is_fa3(None, (20, 20_000))
    assert not is_fa3(TABLE, *[(20, 900)] * 40)
    assert is_fa3(TABLE, *[(2, 200)] * 40, (5000, 5000)), "the long row has nearly all the work"


def test_other_heads_than_the_tables_are_estimated() -> None:
    other = Heads(heads=16, kv_heads=8, head_dim=64, v_head_dim=64)
    assert not is_fa3(TABLE, (20, 20_000), heads=other)


def test_a_table_is_read_where_the_benchmark_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    device = torch.device("cuda", 0)
    assert read_table(device) is None
    path = table_path("NVIDIA H200")
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(TABLE))
    assert read_table(device) == TABLE
    path.write_bytes(b'{"device": 1')
    assert read_table(device) is None
    assert "the table of attention's kernels is not used" in caplog.text
