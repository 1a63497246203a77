"""`PromptBudget`: divides a step's prompt tokens if the admitted prompts need more than there are.

Half of them belong to the prompt that was admitted first, so that it goes on in every step. The
other half goes to those that have the least left to compute, which may be that prompt, too; and
what either half does not need, the other gets. So a short prompt passes longer ones, which it
delays at most twofold, and nobody starves: each prompt is the first one at some time. (Shortest
remaining time first, with half of the machine as ageing; vLLM bounds concurrent partial prefills
for the same end.)
"""

from collections.abc import Sequence

from pando_worker.scheduler.batches.batching import Row, next_row
from pando_worker.scheduler.images import Images
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.req import Req

# A prompt passes those that have at least this many times as much left to compute, so few prompts
# are unfinished at a time, and a prompt is not passed by its like.
LONGER = 2


class PromptBudget:
    def __init__(self, tokens: int, work: Sequence[int], page_size: int) -> None:
        """
        Args:
            tokens: prompt tokens that the step can run, at least a page
            work: tokens that each admitted prompt has left to compute
        """
        self._tokens = tokens
        self._of_shortest = _of_shortest(tokens, page_size)
        self._work = list(work)

    @property
    def left(self) -> int:
        """Tokens that are left once all admitted prompts have run; negative if they cannot."""
        return self._tokens - sum(self._work)

    def takes_whole(self, req: Req) -> bool:
        """Whether a waiting prompt can run whole beside the admitted ones, or alone."""
        return not self._work or req.extend_len <= self.left

    def add(self, work: int) -> None:
        """Add an admitted prompt with `work` tokens to compute."""
        self._work.append(work)

    def passes(self, work: float) -> bool:
        """Whether a prompt with `work` tokens to compute, if admitted, passes longer ones and runs
        in this step."""
        longer = [each for each in self._work if each >= LONGER * work]
        return bool(longer) and sum(self._work) - sum(longer) < self._of_shortest


def prefill_rows(
    prefilling: Sequence[Req], tokens: int, kv: KVManager, images: Images | None = None
) -> list[Row]:
    """Divide a step's prompt tokens, and the available window pages, among admitted prompts;
    allocates the window pages of their rows.

    A prompt that gets fewer tokens than it needs runs a chunk of whole pages, or one that ends
    beside an image that may not be cut. With `KVManager.whole_prompts`, none gets fewer.

    Args:
        prefilling: in order of admission
        tokens: at least a page
        images: what the vision tower may encode; None without one
    """
    if not prefilling:
        return []
    if kv.whole_prompts:
        return [next_row(req, req.extend_len) for req in prefilling]
    if images:
        images.begin()
    shares = shares_of([req.extend_len for req in prefilling], tokens, kv.page_size)
    rows: list[Row] = []
    for req, share in zip(prefilling, shares, strict=True):
        limit = kv.step_limit(req)
        count, wanted = min(limit, share), share
        if req.images and images:
            # In front of all, it may run an image that is longer than the step.
            count = images.limit(req, count, count if rows else limit)
            wanted = max(share, images.least(req))
        elif count < req.extend_len:
            # cached_len is a multiple of the page size here, so chunks end on page boundaries.
            count = count // kv.page_size * kv.page_size
        if count > 0:
            kv.cover(req, req.cached_len + count)
            rows.append(next_row(req, count))
        if limit < wanted:
            break  # those behind it must not take the window pages that it waits for
    return rows


def shares_of(work: Sequence[int], tokens: int, page_size: int) -> list[int]:
    """How many of a step's prompt tokens each admitted prompt gets.

    Args:
        work: tokens that each has left to compute, in order of admission
        tokens: at least a page
    """
    shares = [0] * len(work)
    shares[0] = min(work[0], tokens - _of_shortest(tokens, page_size))
    left = tokens - shares[0]
    for index in sorted(range(len(work)), key=work.__getitem__):
        more = min(left, work[index] - shares[index])
        shares[index] += more
        left -= more
    return shares


def _of_shortest(tokens: int, page_size: int) -> int:
    """The half of a step's prompt tokens that belongs to the shortest, unless the other half is
    less than a page."""
    return tokens // 2 if tokens >= 2 * page_size else 0
