"""`Decodes`: the running requests that get one token in each step, kept as arrays.

Most of a busy step's rows are decodes, and from one step to the next only their lengths change. So
what a batch needs of them is not gathered from the requests again in each step: they have a
position here from their first decode to their last, and the arrays change where something changes.
When one leaves, the last one takes its position.

A request whose grammar has forced several tokens is not here while it runs them.
"""

from collections.abc import Sequence

import numpy as np

from pando_worker.batch import Float32, Int32, Int64, Penalties, SamplingBatch
from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.memory.window_sight import WindowSight
from pando_worker.messages import SamplingParams
from pando_worker.scheduler.req import Req


class Decodes:
    """
    Attributes:
        reqs: by position
        edited: those with a bias on some logits, or rules, or that want log-probabilities
        constrained: those with a grammar
    """

    def __init__(self, pool: ReqToTokenPool, sight: WindowSight | None) -> None:
        """
        Args:
            sight: None if all layers share one pool
        """
        size = len(pool.pages)
        self.reqs: list[Req] = []
        self.edited: dict[Req, None] = {}
        self.constrained: dict[Req, None] = {}
        self._pool = pool
        self._sight = sight
        self._position: dict[Req, int] = {}
        self._num_penalised = 0
        self._num_shifted = 0
        self._num_adapted = 0
        # By position; only the first len(reqs) entries count.
        self._row: Int64 = np.zeros(size, dtype=np.int64)
        self._tokens: Int64 = np.zeros(size, dtype=np.int64)  # Req.num_tokens
        self._pages: Int64 = np.zeros(size, dtype=np.int64)  # Req.num_pages
        self._window_first: Int64 = np.zeros(size, dtype=np.int64)  # Req.window_first
        self._limit: Int64 = np.zeros(size, dtype=np.int64)  # the most tokens it may have
        self._prompt: Int64 = np.zeros(size, dtype=np.int64)
        self._shift: Int64 = np.zeros(size, dtype=np.int64)  # Req.shift
        self._slot: Int32 = np.full(size, -1, dtype=np.int32)  # Req.slot
        self._seed: Int64 = np.zeros(size, dtype=np.int64)
        self._top_k: Int64 = np.zeros(size, dtype=np.int64)
        self._temperature: Float32 = np.zeros(size, dtype=np.float32)
        self._top_p: Float32 = np.zeros(size, dtype=np.float32)
        self._min_p: Float32 = np.zeros(size, dtype=np.float32)
        self._presence: Float32 = np.zeros(size, dtype=np.float32)
        self._frequency: Float32 = np.zeros(size, dtype=np.float32)
        self._repetition: Float32 = np.ones(size, dtype=np.float32)
        self._arrays = [each for each in vars(self).values() if isinstance(each, np.ndarray)]

    def __len__(self) -> int:
        return len(self.reqs)

    # Requests come and go

    def add(self, req: Req) -> None:
        assert req.extend_len == 1
        assert self._sight is None or req.window_end == req.num_pages
        position = len(self.reqs)
        self.reqs.append(req)
        self._position[req] = position
        self._row[position] = req.row
        self._limit[position] = len(req.ids)
        self._prompt[position] = req.prompt_len
        self._shift[position] = req.shift
        self._num_shifted += req.shift != 0
        self._slot[position] = req.slot
        self._num_adapted += req.slot >= 0
        params = req.sampling
        self._seed[position] = params.seed
        self._temperature[position] = params.temperature
        self._top_k[position] = params.top_k
        self._top_p[position] = params.top_p
        self._min_p[position] = params.min_p
        self._presence[position] = params.presence_penalty
        self._frequency[position] = params.frequency_penalty
        self._repetition[position] = params.repetition_penalty
        self._num_penalised += is_penalised(params)
        if has_bias(params) or req.logprobs or req.rules:
            self.edited[req] = None
        if req.grammar is not None:
            self.constrained[req] = None
        self._read(position)

    def discard(self, req: Req) -> None:
        if req not in self._position:
            return
        position = self._position.pop(req)
        self.edited.pop(req, None)
        self.constrained.pop(req, None)
        self._num_penalised -= is_penalised(req.sampling)
        self._num_shifted -= req.shift != 0
        self._num_adapted -= self._slot[position] >= 0
        last = self.reqs.pop()
        if last is not req:
            self.reqs[position] = last
            self._position[last] = position
            for array in self._arrays:
                array[position] = array[len(self.reqs)]

    def position(self, req: Req) -> int:
        return self._position[req]

    # Pages

    @property
    def lacking(self) -> Int64:
        """The positions of those that lack a page to run their token, and its window page; none
        lacks more."""
        n = len(self.reqs)
        found: Int64 = (self._tokens[:n] > self._pages[:n] * self._pool.page_size).nonzero()[0]
        return found

    def grow(self, positions: Int64, pages: Pages) -> None:
        """Give the requests at these positions a page each, which has a window page."""
        self._pool.pages[self._row[positions], self._pages[positions]] = pages
        self._pages[positions] += 1
        for req in [self.reqs[position] for position in positions.tolist()]:
            req.num_pages += 1
            if self._sight:
                req.window_end = req.num_pages

    def lacking_ahead(self, steps: int) -> int:
        """Pages that they lack to run a token each in each of the next `steps` steps."""
        n = len(self.reqs)
        pages = -(-(self._tokens[:n] + steps - 1) // self._pool.page_size)
        return int((pages - self._pages[:n]).sum())

    def needs_ahead(self, steps: int) -> list[tuple[int, int]]:
        """The same, page by page: in which step, and the position, in the order in which single
        steps take them."""
        n, size = len(self.reqs), self._pool.page_size
        firsts = self._pages[:n] * size - self._tokens[:n] + 1
        positions = (firsts < steps).nonzero()[0]
        each = zip(positions.tolist(), firsts[positions].tolist(), strict=True)
        return sorted((step, at) for at, first in each for step in range(first, steps, size))

    def grow_ahead(self, positions: Sequence[int], pages: Pages) -> None:
        """Like `grow`, without window pages; one may get several pages, in this order."""
        for position, page in zip(positions, pages.tolist(), strict=True):
            req = self.reqs[position]
            self._pool.pages[req.row, req.num_pages] = page
            req.num_pages += 1
            self._pages[position] += 1

    def expected_pages(self, new_token_ratio: float, most: int) -> tuple[int, int]:
        """Pages, and window pages, that they will probably still need for their output.

        Args:
            new_token_ratio: the share expected of the tokens that they may still produce, of which
                at most `most` count for each
        """
        n, size = len(self.reqs), self._pool.page_size
        allowed = np.minimum(self._limit[:n] - self._tokens[:n], most)
        total = self._tokens[:n] + np.ceil(allowed * new_token_ratio).astype(np.int64)
        pages, window_pages = int((-(-total // size) - self._pages[:n]).sum()), 0
        if self._sight:
            held = self._pages[:n] - self._window_first[:n]
            window_pages = int(np.maximum(0, self._sight.all_most(total) - held).sum())
        return pages, window_pages

    def expected_pages_ahead(self, new_token_ratios: Sequence[float], most: int) -> Int64:
        """The first of `expected_pages` in each of the next steps, with pages only for the tokens
        that they have now. They share one pool of pages.

        Args:
            new_token_ratios: in each of these steps
        """
        n, size = len(self.reqs), self._pool.page_size
        steps = np.arange(len(new_token_ratios))[:, None]
        tokens = self._tokens[:n] + steps
        allowed = np.minimum(self._limit[:n] - tokens, most)
        ratios = np.array(new_token_ratios)[:, None]
        total = tokens + np.ceil(allowed * ratios).astype(np.int64)
        pages: Int64 = (-(-total // size) - self._pages[:n]).sum(axis=1)
        return pages

    @property
    def passing(self) -> list[Req]:
        """Those whose launched steps leave a page behind their windows."""
        if self._sight is None:
            return []
        n = len(self.reqs)
        kept = self._sight.all_first_kept(self._tokens[:n] - 1)
        passing = np.flatnonzero(kept > self._window_first[:n])
        self._window_first[:n] = np.maximum(kept, self._window_first[:n])
        return [self.reqs[position] for position in passing.tolist()]

    # Steps

    def launched(self) -> None:
        """A step that runs a token of each was launched."""
        n = len(self.reqs)
        for req in self.reqs:
            req.cached_len += 1
            req.in_flight += 1
            req.unseen += 1
        self._tokens[:n] += 1

    def run_ahead(self, tokens: Sequence[int], steps: int) -> None:
        """Apply `steps` steps that ran a token of each, sampled that one each time."""
        for req, token in zip(self.reqs, tokens, strict=True):
            req.run_ahead(token, steps)
        self._tokens[: len(self.reqs)] += steps

    @property
    def fewest_left(self) -> int:
        """The fewest tokens that one of them may still produce."""
        n = len(self.reqs)
        return int((self._limit[:n] - self._tokens[:n]).min())

    def discard_full(self) -> None:
        """Those at their limit leave, since only the results of launched steps are left to come."""
        n = len(self.reqs)
        full = (self._tokens[:n] >= self._limit[:n]).nonzero()[0]
        for req in [self.reqs[position] for position in full.tolist()]:
            self.discard(req)

    # What a batch says of them, each by position

    @property
    def row(self) -> Int64:
        """Rows of the ReqToTokenPool."""
        return self._row[: len(self.reqs)].copy()

    @property
    def num_tokens(self) -> Int64:
        return self._tokens[: len(self.reqs)].copy()

    @property
    def shift(self) -> Int64 | None:
        """What their images add to their rotary positions; None if nothing to any."""
        return self._shift[: len(self.reqs)].copy() if self._num_shifted else None

    @property
    def slots(self) -> Int32 | None:
        """Of their adapters, -1 for the base model; None if all run that."""
        return self._slot[: len(self.reqs)].copy() if self._num_adapted else None

    @property
    def window_first(self) -> Int64:
        """The first page of each that its step attends to through a window."""
        return self._window_first[: len(self.reqs)].copy()

    @property
    def input_ids(self) -> Int64:
        """The token that each runs; -1 - row if it is not known yet."""
        ids = -1 - self._row[: len(self.reqs)]
        for position, req in enumerate(self.reqs):
            if not req.unseen:
                ids[position] = req.ids[req.cached_len]
        return ids

    def sampling(self) -> SamplingBatch:
        n = len(self.reqs)
        return SamplingBatch(
            temperature=self._temperature[:n].copy(),
            top_k=self._top_k[:n].copy(),
            top_p=self._top_p[:n].copy(),
            min_p=self._min_p[:n].copy(),
            seed=self._seed[:n].copy(),
            step=self._tokens[:n] - self._prompt[:n],
        )

    def penalties(self, input_ids: Int64) -> Penalties | None:
        """Of those that have any, each with the token that it runs. What it had before came with
        its prompt, from whose last step its first token is.

        Args:
            input_ids: of this step
        """
        if not self._num_penalised:
            return None
        n = len(self.reqs)
        presence, frequency = self._presence[:n], self._frequency[:n]
        repetition = self._repetition[:n]
        samples = np.flatnonzero((presence != 0) | (frequency != 0) | (repetition != 1))
        return Penalties(
            samples=samples,
            presence=presence[samples],
            frequency=frequency[samples],
            repetition=repetition[samples],
            rows=self._row[samples],
            begins=np.zeros(len(samples), dtype=np.bool_),
            tokens=input_ids[samples],
            token_row=np.arange(len(samples)),
            is_output=np.ones(len(samples), dtype=np.bool_),
        )

    def _read(self, position: int) -> None:
        req = self.reqs[position]
        self._tokens[position] = req.num_tokens
        self._pages[position] = req.num_pages
        self._window_first[position] = req.window_first


def has_bias(params: SamplingParams) -> bool:
    """Whether numbers are added to a request's logits before a token is sampled."""
    return bool(params.logit_bias or params.min_new_tokens)


def is_penalised(params: SamplingParams) -> bool:
    return (
        params.presence_penalty != 0
        or params.frequency_penalty != 0
        or params.repetition_penalty != 1
    )
