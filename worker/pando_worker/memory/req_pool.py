"""`ReqToTokenPool`: the page table of the running requests.

One row per running request: the KV slot of (row, position) is
`pages[row, position // page_size] * page_size + position % page_size`.
"""

import numpy as np
from numpy.typing import NDArray


class ReqToTokenPool:
    def __init__(self, max_requests: int, max_request_tokens: int, page_size: int) -> None:
        max_pages = -(-max_request_tokens // page_size)
        self.page_size = page_size
        self.pages: NDArray[np.int32] = np.zeros((max_requests, max_pages), dtype=np.int32)
        # Grows when a row gets another owner, or other pages in place of those that it had.
        self.version: NDArray[np.int64] = np.zeros(max_requests, dtype=np.int64)
        self._free_rows = list(range(max_requests - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free_rows)

    def alloc(self) -> int:
        """Allocate a row for one more running request. Raises IndexError if none is free."""
        row = self._free_rows.pop()
        self.version[row] += 1
        return row

    def free(self, row: int) -> None:
        self._free_rows.append(row)

    def replace(self, row: int, start: int, pages: NDArray[np.int32]) -> None:
        """Put `pages` in the place of those that a row has from number `start` on."""
        own = self.pages[row, start : start + len(pages)]
        if not np.array_equal(own, pages):
            own[:] = pages
            self.version[row] += 1
