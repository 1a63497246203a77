"""A model whose next token is a hash of all tokens before it, read through the KV pool.

Each slot holds the hash of the prefix that ends there, computed from the previous slot by the page
table. So a wrong page, a stale slot or a lost token changes every following token, and the correct
output can be computed without any pool: `expected_tokens`.

With a window, each slot of a second pool holds the hash of its own token and position. The hashes
of the last `window` tokens, read by the window table, are mixed into each prefix's hash.

With an adapter, the hash begins with that of its identity, which the model reads from the row's
slot: a wrong slot, or one that was loaded anew meanwhile, changes every token of the row.

With sources, the encoder writes the hash of each id and its position to the source's slots, and
the hashes of the whole source, read by its table, are mixed into each prefix's hash.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.info import RANK_PAGE, AdapterInfo
from pando_worker.batch import (
    ForwardBatch,
    Int32,
    Int64,
    Logprobs,
    PageCopies,
    PooledRows,
    StepResult,
)
from pando_worker.messages import Pooling

T = TypeVar("T")

VOCAB = 97


def _mix(prefix: int, token: int) -> int:
    return (prefix * 1_000_003 + token + 1) % 2_147_483_647


def _mix_window(prefix: int, seen: Sequence[int]) -> int:
    for each in seen:
        prefix = _mix(prefix, each)
    return prefix


def _start(adapter: bytes) -> int:
    return _mix(7, int.from_bytes(adapter)) if adapter else 7


def expected_tokens(
    prompt: Sequence[int],
    count: int,
    window: int | None = None,
    adapter: bytes = b"",
    source: Sequence[int] = (),
) -> list[int]:
    """The `count` tokens that follow `prompt`."""
    encoded = [_mix(position, token) for position, token in enumerate(source)]
    state = _start(adapter)
    tokens: list[int] = []
    for index in range(len(prompt) + count):
        tokens.append(prompt[index] if index < len(prompt) else state % VOCAB)
        state = _mix(state, tokens[-1])
        if window:
            first = max(0, index + 1 - window)
            seen = [_mix(at, tokens[at]) for at in range(first, index + 1)]
            state = _mix_window(state, seen)
        state = _mix_window(state, encoded)
    return tokens[len(prompt) :]


def hidden_state(state: int) -> list[int]:
    return [state % 11 - 5, state % 13 - 6, 1]


def expected_embedding(
    prompt: Sequence[int], pooling: Pooling, adapter: bytes = b""
) -> list[float]:
    """An embedding of length 1, [3]."""
    state, states = _start(adapter), list[list[int]]()
    for token in prompt:
        state = _mix(state, token)
        states.append(hidden_state(state))
    return unit(pooled_states(np.array(states, dtype=np.float64), pooling))


def unit(vector: np.ndarray) -> list[float]:
    return list(map(float, vector / np.linalg.norm(vector)))


def pooled_states(states: np.ndarray, pooling: Pooling) -> np.ndarray:
    """[tokens, size] to [size], as sentence-transformers has it."""
    count = len(states)
    weights = np.arange(1, count + 1)[:, None]
    pooled: dict[Pooling, np.ndarray] = {
        Pooling.LAST: states[-1],
        Pooling.CLS: states[0],
        Pooling.MEAN: states.sum(0) / count,
        Pooling.MAX: states.max(0),
        Pooling.SQRT: states.sum(0) / count**0.5,
        Pooling.WEIGHTED: (states * weights).sum(0) / weights.sum(),
    }
    return pooled[pooling]


def _pool(states: np.ndarray, pooled: PooledRows) -> np.ndarray:
    parts, begin = [], 0
    for first, last, is_max in zip(
        pooled.first.tolist(), pooled.last.tolist(), pooled.is_max.tolist(), strict=True
    ):
        own, end = states[first:last], begin + last - first
        if pooled.weights is not None and not is_max:
            own = own * pooled.weights[begin:end, None]
        parts.append(own.max(0) if is_max else own.sum(0))
        begin = end
    return np.array(parts, dtype=np.float32)


class HashRunner:
    """Yields -1 (not finite) for a row that runs a token of `broken`. The log-probability of a
    prompt token is the negative token.

    If a mask forbids the token, the next allowed one is used.
    """

    def __init__(
        self,
        num_slots: int,
        broken: frozenset[int] = frozenset(),
        host_slots: int = 0,
        window: int | None = None,
        window_slots: int = 0,
        host_window_slots: int = 0,
        adapters: "HashAdapters | None" = None,
    ) -> None:
        self.adapters = adapters or HashAdapters({})
        self.state = np.full(num_slots, -1, dtype=np.int64)
        self.host_state = np.full(host_slots, -1, dtype=np.int64)
        self.window = window
        self.window_state = np.full(window_slots, -1, dtype=np.int64)
        self.host_window_state = np.full(host_window_slots, -1, dtype=np.int64)
        self.broken = broken
        self.last: dict[int, int] = {}  # the last token of each request row

    def launch(self, batch: ForwardBatch) -> "HashStep":
        _copy(batch.stores, batch.loads, batch.page_size, self.state, self.host_state)
        windows = self.window_state, self.host_window_state
        _copy(batch.window_stores, batch.window_loads, batch.page_size, *windows)
        self._encode(batch)
        ids = batch.input_ids.copy()
        for index in np.flatnonzero(ids < 0).tolist():
            ids[index] = max(0, self.last[-1 - int(ids[index])])
        adapters = self.adapters.of_rows(batch)
        produced: dict[int, int] = {}
        hidden: list[list[list[int]]] = []  # per row, per token
        start = 0
        for row, (extend, length) in enumerate(
            zip(batch.extend_lens.tolist(), batch.seq_lens.tolist(), strict=True)
        ):
            tokens = ids[start : start + extend].tolist()
            slots = self._check(batch, row, slice(start, start + extend), length)
            before = length - extend
            state = (
                _start(adapters[row])
                if before == 0
                else int(self.state[self._slot(batch, row, before - 1)])
            )
            hidden.append([])
            for index, (token, slot) in enumerate(zip(tokens, slots, strict=True)):
                state = _mix(state, token)
                if self.window:
                    state = self._see_window(batch, row, start + index, token, state)
                state = _mix_window(state, self._source_of(batch, row))
                self.state[slot] = state
                hidden[-1].append(hidden_state(state))
            produced[row] = -1 if self.broken & set(tokens) else state % VOCAB
            start += extend
        rows = batch.sample_rows.tolist()
        pooled = None
        if batch.pooled:
            pooled = _pool(np.concatenate([np.array(row) for row in hidden]), batch.pooled)
        scores = None
        if batch.scores:
            targets = batch.scores.targets
            none = np.empty((len(targets), 0), dtype=np.float32)
            scores = Logprobs(-targets.astype(np.float32), none.astype(np.int32), none)
        last = [(int(batch.req_rows[row]), produced[row]) for row in rows]
        return HashStep(self, last, pooled, scores, self.adapters.launched(batch))

    def _encode(self, batch: ForwardBatch) -> None:
        if batch.sources is None:
            return
        hashes = [
            _mix(position, token)
            for source in batch.sources.encode
            for position, token in enumerate(source.array.tolist())
        ]
        self.state[batch.sources.slots] = hashes

    def _source_of(self, batch: ForwardBatch, row: int) -> list[int]:
        """The hashes of a row's source, as they lie in the pool."""
        if batch.sources is None:
            return []
        positions = np.arange(batch.sources.lengths[row])
        pages = batch.sources.page_table[row][positions // batch.page_size].astype(np.int64)
        found: list[int] = self.state[
            pages * batch.page_size + positions % batch.page_size
        ].tolist()
        return found

    def _see_window(self, batch: ForwardBatch, row: int, index: int, token: int, state: int) -> int:
        """Store token `index` of the batch for the window, and mix in the tokens that it sees."""
        assert self.window
        assert batch.window_table is not None
        assert batch.window_slots is not None
        position = int(batch.positions[index])
        first, size = max(0, position + 1 - self.window), batch.page_size
        seen = np.arange(first, position + 1)
        pages = batch.window_table[row][seen // size]
        assert (pages >= 0).all(), "a page within the window has been released"
        slots = pages * size + seen % size
        assert slots[-1] == batch.window_slots[index]
        self.window_state[slots[-1]] = _mix(position, token)
        return _mix_window(state, self.window_state[slots].tolist())

    def _check(self, batch: ForwardBatch, row: int, part: slice, length: int) -> list[int]:
        """The slots of a row's new tokens, which must agree with the page table."""
        positions = batch.positions[part].tolist()
        assert positions == list(range(length - len(positions), length))
        slots = [self._slot(batch, row, position) for position in positions]
        assert slots == batch.out_slots[part].tolist()
        return slots

    @staticmethod
    def _slot(batch: ForwardBatch, row: int, position: int) -> int:
        page = int(batch.page_table[row][position // batch.page_size])
        return page * batch.page_size + position % batch.page_size


def _copy(
    stores: PageCopies | None,
    loads: PageCopies | None,
    page_size: int,
    on_device: Int64,
    on_host: Int64,
) -> None:
    if stores:
        device, host = _slots_of(stores, page_size)
        on_host[host] = on_device[device]
    if loads:
        device, host = _slots_of(loads, page_size)
        on_device[device] = on_host[host]


def _slots_of(copies: PageCopies, page_size: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Slots on the device and on the host, in the same order."""
    offsets = np.arange(page_size, dtype=np.int32)
    device = (copies.device[:, None] * page_size + offsets).ravel()
    host = (copies.host[:, None] * page_size + offsets).ravel()
    assert len(np.unique(host)) == len(host), "two copies with one host page"
    assert len(np.unique(device)) == len(device), "two copies with one device page"
    return device, host


class HashJob(Generic[T]):
    """Is done when it has been asked so often; raises the error that it results in."""

    def __init__(self, result: Callable[[], T], asks: int) -> None:
        self._result = result
        self._asks = asks

    def done(self) -> bool:
        self._asks -= 1
        return self._asks < 0

    def result(self) -> T:
        return self._result()


class HashAdapters:
    """Adapters that are files of a name: their identity, and their rank. Checks that no load
    touches a slot or a page that a launched step or another slot uses."""

    def __init__(self, files: dict[str, tuple[bytes, int]], asks: int = 0) -> None:
        """
        Args:
            asks: how often a job has to be asked whether it is done
        """
        self.files = files
        self.asks = asks
        self.host: dict[bytes, AdapterInfo] = {}
        self.slots: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        self.loads = 0
        self._in_flight: list[set[int]] = []

    @property
    def in_host_memory(self) -> Collection[bytes]:
        return self.host

    def check(self, path: str) -> HashJob[AdapterInfo]:
        return HashJob(lambda: self._read(path), self.asks)

    def load(self, slot: int, pages: Sequence[int], info: AdapterInfo) -> HashJob[None]:
        assert len(pages) == len(set(pages)) == info.pages
        assert not any(slot in step for step in self._in_flight), "a launched step uses the slot"
        for other, (_, taken) in [*self.slots.items()]:
            if other == slot or set(taken) & set(pages):
                assert not any(other in step for step in self._in_flight), "a step uses its pages"
                del self.slots[other]
        self.loads += 1
        return HashJob(lambda: self._put(slot, tuple(pages), info), self.asks)

    def forget(self, identity: bytes) -> None:
        self.host.pop(identity, None)

    def of_rows(self, batch: ForwardBatch) -> list[bytes]:
        """The identity of each row's adapter."""
        if batch.adapters is None:
            return [b""] * len(batch.extend_lens)
        slots = batch.adapters.slots
        assert slots.dtype == np.int32
        assert len(slots) == len(batch.extend_lens)
        assert (slots >= 0).any(), "a step of base rows has no cost"
        return [self.slots[slot][0] if slot >= 0 else b"" for slot in slots.tolist()]

    def launched(self, batch: ForwardBatch) -> Callable[[], None]:
        """Notes the slots of a step; returns what to call at its end."""
        used = set(batch.adapters.slots.tolist()) if batch.adapters else set()
        self._in_flight.append(used)
        return lambda: self._in_flight.remove(used)

    def _read(self, path: str) -> AdapterInfo:
        if path not in self.files:
            raise AdapterError(f"{path} is no adapter")
        identity, rank = self.files[path]
        info = AdapterInfo(identity, Path(path), rank, -(-rank // RANK_PAGE), rank)
        self.host[identity] = info
        return info

    def _put(self, slot: int, pages: tuple[int, ...], info: AdapterInfo) -> None:
        if self.files.get(str(info.path), (b"", 0))[0] != info.identity:
            raise AdapterError(f"{info.path} has changed")
        self.slots[slot] = info.identity, pages


class HashStep:
    def __init__(
        self,
        runner: HashRunner,
        produced: list[tuple[int, int]],
        pooled: NDArray[np.float32] | None,
        scores: Logprobs | None,
        ended: Callable[[], None],
    ) -> None:
        self._runner = runner
        self._ended = ended
        self._scores = scores
        self._pooled = pooled
        self._produced = produced  # request row and its next token
        self._tokens: list[int] | None = None

    def sample(self, mask: Int32 | None) -> None:
        assert self._tokens is None, "sampled twice"
        self._tokens = []
        for index, (row, token) in enumerate(self._produced):
            if mask is not None and token >= 0:
                token = _next_in_mask(token, mask[index])
            self._runner.last[row] = token
            self._tokens.append(token)

    def result(self) -> StepResult:
        assert self._tokens is not None, "sample comes first"
        self._ended()
        tokens = np.array(self._tokens, dtype=np.int64)
        return StepResult(tokens=tokens, scores=self._scores, pooled=self._pooled)


def next_allowed(token: int, allowed: Callable[[int], bool]) -> int:
    return next(t % VOCAB for t in range(token, token + VOCAB) if allowed(t % VOCAB))


def _next_in_mask(token: int, words: NDArray[np.int32]) -> int:
    return next_allowed(token, lambda t: bool(words[t // 32] >> (t % 32) & 1))
