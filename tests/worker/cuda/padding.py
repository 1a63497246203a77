"""Batches of decodes with rows that no request owns: what a graph's attention makes of a batch."""

from dataclasses import replace

import numpy as np

from pando_worker.attention.device_pages import Padding
from pando_worker.batch import ForwardBatch


def padded(batch: ForwardBatch, rows: int, padding: Padding) -> ForwardBatch:
    """A batch of decodes, padded to `rows` rows with one token each, in the first slot of
    `padding`'s pages."""
    more = rows - len(batch.seq_lens)
    tables, page_size = ((0, more), (0, 0)), batch.page_size
    whole = replace(
        batch,
        input_ids=np.pad(batch.input_ids, (0, more)),
        positions=np.pad(batch.positions, (0, more)),
        out_slots=np.pad(batch.out_slots, (0, more), constant_values=padding.page * page_size),
        extend_lens=np.pad(batch.extend_lens, (0, more), constant_values=1),
        seq_lens=np.pad(batch.seq_lens, (0, more), constant_values=1),
        req_rows=np.pad(batch.req_rows, (0, more), constant_values=padding.row),
        page_table=np.pad(batch.page_table, tables, constant_values=padding.page),
    )
    page = padding.window_page
    if page is not None and batch.window_table is not None and batch.window_slots is not None:
        slots = np.pad(batch.window_slots, (0, more), constant_values=page * page_size)
        whole.window_table = np.pad(batch.window_table, tables, constant_values=page)
        whole.window_slots = slots
    return whole
