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
    def __init__(self, tokens: int, prefilling: Sequence[Req], page_size: int) -> None:
        """
        Args:
            tokens: prompt tokens that the step can run, at least a page
            prefilling: the admitted prompts, in order of admission
        """
        self._tokens = tokens
        self._of_shortest = _of_shortest(tokens, page_size)
        self._work = [req.extend_len for req in prefilling]

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

    def passes(self, work: int) -> bool:
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
    first = prefilling[0]
    shares = dict.fromkeys(prefilling, 0)
    shares[first] = min(first.extend_len, tokens - _of_shortest(tokens, kv.page_size))
    left = tokens - shares[first]
    for req in sorted(prefilling, key=lambda req: req.extend_len):
        more = min(left, req.extend_len - shares[req])
        shares[req] += more
        left -= more
    rows: list[Row] = []
    for req, share in shares.items():
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


def _of_shortest(tokens: int, page_size: int) -> int:
    """The half of a step's prompt tokens that belongs to the shortest, unless the other half is
    less than a page."""
    return tokens // 2 if tokens >= 2 * page_size else 0
