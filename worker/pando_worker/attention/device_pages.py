"""`DevicePages`: the page tables of all requests, in the device's memory.

A step lists the pages of its rows for the attention's kernels. With long contexts these are more
numbers than all its other arrays together, and nearly all of them were there in the step before. So
the device has a table of its own, of the rows of the ReqToTokenPool; a step brings what has changed
(`PageChanges`), and a kernel lists the pages from the table.
"""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.staging import Staging
from pando_worker.batch import PageChanges


class AskedPages(NamedTuple):
    """As a `PageLister` takes them."""

    rows: Tensor
    firsts: Tensor
    indptr: Tensor


class TableSize(NamedTuple):
    """
    Attributes:
        rows: requests that run at a time
        pages: of a request, at most
    """

    rows: int
    pages: int


class Padding(NamedTuple):
    """What rows of padding use, which no request owns.

    Attributes:
        page: of the KV pool
        window_page: of the window layers' pool; None if all layers share one
        row: of the device's page tables
    """

    page: int
    window_page: int | None = None
    row: int = 0

    @property
    def pages(self) -> dict[bool, int]:
        """By whether layers release pages behind their window."""
        if self.window_page is None:
            return {False: self.page}
        return {False: self.page, True: self.window_page}


class PageLister(Protocol):
    def __call__(
        self, table: Tensor, rows: Tensor, firsts: Tensor, indptr: Tensor, count: int, most: int, /
    ) -> Tensor:
        """The pages of some rows of a table, one row after the other.

        Args:
            table: int32 [rows of the table, pages]
            rows: int32 [n], of the table
            firsts: int32 [n], where in these the pages begin
            indptr: int32 [n + 1], where in the result the pages of each row begin
            count: of all pages
            most: pages of a row, or more

        Returns:
            int32 [count]
        """
        ...


def list_pages(
    table: Tensor, rows: Tensor, firsts: Tensor, indptr: Tensor, count: int, most: int
) -> Tensor:
    """A `PageLister` of torch's operators."""
    begins = rows.long() * table.shape[1] + firsts - indptr[:-1]
    begins = torch.repeat_interleave(begins, indptr.diff(), output_size=count)
    places = begins + torch.arange(count, device=table.device)
    return table.view(-1).index_select(0, places)


class DevicePages:
    """
    Attributes:
        padding_row: a row of one page, which belongs to no request
    """

    def __init__(
        self, size: TableSize, device: torch.device, lister: PageLister, *, windows: bool
    ) -> None:
        """
        Args:
            windows: whether layers with windows have a pool of their own
        """
        self.padding_row = size.rows
        self._lister = lister
        kinds = (False, True) if windows else (False,)
        shape = len(kinds), size.rows + 1, size.pages
        memory = torch.zeros(shape, dtype=torch.int32, device=device)
        self._tables = dict(zip(kinds, memory, strict=True))
        # A step's changes of both are put here at once.
        self._numbers = memory.view(-1)
        self._width, self._size = np.int64(size.pages), memory[0].numel()

    def pad(self, page: int, window_page: int | None) -> None:
        """Let the padding row have this page, and this one for layers with windows. Lists it once,
        so that a lister's kernel is compiled before there are requests."""
        self._tables[False][self.padding_row].fill_(page)
        if window_page is not None:
            self._tables[True][self.padding_row].fill_(window_page)
        first, rows = (
            torch.full((1,), number, dtype=torch.int32, device=self._numbers.device)
            for number in (0, self.padding_row)
        )
        indptr = torch.arange(2, dtype=torch.int32, device=self._numbers.device)
        self.listed(AskedPages(rows, first, indptr), 1, 1, released=False)

    def apply(self, changes: PageChanges, staging: Staging) -> None:
        if not len(changes.rows):
            return
        places, pages = changes.rows * self._width + changes.columns, changes.pages
        if True in self._tables:
            assert changes.window_pages is not None
            places = np.concatenate((places, places + self._size))
            pages = np.concatenate((pages, changes.window_pages))
        at, pages_there = staging.on_device(places.view(np.int32), pages)
        self._numbers.index_copy_(0, at.view(torch.int64), pages_there)

    def listed(self, asked: AskedPages, count: int, most: int, *, released: bool) -> Tensor:
        """The pages of some rows, int32 [count], row after row.

        Args:
            count, most: as a `PageLister` takes them
            released: the pages of the layers that release them behind their window
        """
        return self._lister(self._tables[released], *asked, count, most)
