"""A scheduler on a model, by default the hash model, and its client, which sends commands and
collects events."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pando_worker.batch import ForwardBatch, ModelRunner, Step
from pando_worker.memory.window_pages import WindowPages
from pando_worker.memory.window_sight import WindowSight
from pando_worker.messages import (
    Abort,
    AdapterDone,
    AdapterLoaded,
    AdapterPlaces,
    AdapterRefused,
    Aligned,
    CacheFlushed,
    Embed,
    Embedded,
    Event,
    FinishReason,
    FlushCache,
    Generate,
    LoadAdapter,
    LogprobsWanted,
    Outputs,
    PinAdapter,
    Pooling,
    Rejected,
    SamplingParams,
    Source,
    TokenLogprob,
    UnloadAdapter,
    Verified,
)
from pando_worker.pools import Pools, SourceForm
from pando_worker.rates import Rate
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.scheduler.batches.constrained import OutputGrammarCompiler
from pando_worker.scheduler.req import Req
from pando_worker.settings import WorkerSettings
from tests.worker.scheduler.grammars import GrammarsForTests
from tests.worker.scheduler.hash_model import HashAdapters, HashRunner


class World:
    OVERLAP = True  # unless a test says otherwise

    def __init__(
        self,
        *,
        pages: int = 64,
        page_size: int = 4,
        max_running: int = 8,
        max_request_tokens: int = 10_000,
        host_pages: int = 0,
        host_window_pages: int = 0,
        copy_rate: Rate | None = None,
        window: int = 0,
        window_pages: int = 0,
        pools: Pools | None = None,  # replaces these numbers of pages
        runner: ModelRunner | None = None,
        grammars: OutputGrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
        adapters: HashAdapters | None = None,
        adapter_slots: int = 0,
        adapter_pages: int = 0,
        source: SourceForm | None = None,
        **settings: object,
    ) -> None:
        self.settings = WorkerSettings.model_validate(
            {
                "model": "hash",
                "page_size": page_size,
                "max_running_requests": max_running,
                "overlap_schedule": self.OVERLAP,
                **settings,
            }
        )
        pools = pools or Pools(
            capacity_tokens=pages * page_size,
            context_length=max_request_tokens,
            window=window,
            window_pages=window_pages,
            host_pages=host_pages,
            host_window_pages=host_window_pages,
            host_page_bytes=page_size,  # one byte per token
            copy_rate=copy_rate or Rate(),
            adapter_slots=adapter_slots,
            adapter_pages=adapter_pages,
            source=source,
        )
        self.batches: list[ForwardBatch] = []
        self.adapters = adapters or HashAdapters({})
        self._runner = runner or HashRunner(
            pools.capacity_tokens,
            host_slots=pools.host_pages * page_size,
            window=pools.window,
            window_slots=pools.window_pages * page_size,
            host_window_slots=pools.host_window_pages * page_size,
            adapters=adapters,
        )
        self.grammars = GrammarsForTests()
        self.scheduler = make_scheduler(
            self.settings, pools, self, grammars or self.grammars, clock, adapters=adapters
        )
        self.kv = self.scheduler.kv
        self.tokens: dict[str, list[int]] = {}
        self.cached: dict[str, int] = {}
        self.finish: dict[str, FinishReason] = {}
        self.rejected: dict[str, Rejected] = {}
        self.flushes: list[bool] = []
        self.identities: dict[int, bytes] = {}  # of loaded adapters, by the call
        self.done_calls: list[int] = []
        self.refused: dict[int, AdapterRefused] = {}
        self.places = AdapterPlaces()
        self._calls = 0
        self.embeddings: dict[str, list[float]] = {}
        self.logprobs: dict[str, list[TokenLogprob]] = {}
        self.prompt_logprobs: dict[str, list[TokenLogprob]] = {}
        self.probed: dict[str, list[float]] = {}
        self.aligned: dict[str, bytes] = {}
        self.verified: dict[str, Verified] = {}

    def send(
        self,
        rid: str,
        prompt: Sequence[int],
        max_new_tokens: int = 4,
        stop_token_ids: Sequence[int] = (),
        logprobs: LogprobsWanted | None = None,
        grammar: str | None = None,
        priority: int = 0,
        namespace: bytes = b"",
        adapter: bytes = b"",
        deadline_s: float | None = None,
        source: Source | None = None,
        **sampling: Any,
    ) -> None:
        self.tokens[rid] = []
        command = Generate(
            rid=rid,
            input_ids=list(prompt),
            sampling=SamplingParams(
                max_new_tokens=max_new_tokens,
                stop_token_ids=tuple(stop_token_ids),
                **{"temperature": 0, **sampling},
            ),
            logprobs=logprobs,
            grammar=grammar,
            priority=priority,
            namespace=namespace,
            adapter=adapter,
            deadline_s=deadline_s,
            source=source,
        )
        self.collect(self.scheduler.receive(command))

    def embed(
        self,
        rid: str,
        prompt: Sequence[int],
        pooling: Pooling,
        adapter: bytes = b"",
        *,
        is_normalized: bool = True,
        second: int = 0,
    ) -> None:
        self.tokens[rid] = []
        command = Embed(
            rid=rid,
            input_ids=list(prompt),
            pooling=pooling,
            adapter=adapter,
            is_normalized=is_normalized,
            second=second,
        )
        self.collect(self.scheduler.receive(command))

    def load_adapter(self, path: str) -> int:
        return self._call(lambda call: LoadAdapter(call=call, path=path))

    def pin_adapter(self, identity: bytes, *, is_pinned: bool = True) -> int:
        return self._call(
            lambda call: PinAdapter(call=call, identity=identity, is_pinned=is_pinned)
        )

    def unload_adapter(self, identity: bytes) -> int:
        return self._call(lambda call: UnloadAdapter(call=call, identity=identity))

    def _call(self, command: Callable[[int], LoadAdapter | PinAdapter | UnloadAdapter]) -> int:
        self._calls += 1
        self.collect(self.scheduler.receive(command(self._calls)))
        return self._calls

    def launch(self, batch: ForwardBatch) -> Step:
        """The scheduler's model runner: records the batches."""
        self.batches.append(batch)
        self._check_tables(batch)
        return self._runner.launch(batch)

    def abort(self, rid: str) -> None:
        self.collect(self.scheduler.receive(Abort(rid=rid)))

    def flush(self) -> bool:
        self.collect(self.scheduler.receive(FlushCache(call=len(self.flushes))))
        return self.flushes[-1]

    def step(self) -> None:
        self.collect(self.scheduler.step())

    def run(self, max_steps: int = 10_000) -> None:
        """Step until nothing is left to do."""
        for _ in range(max_steps):
            if self.scheduler.is_idle and not self.scheduler.only_waits:
                return
            self.step()
        raise AssertionError(f"not idle after {max_steps} steps: {self.scheduler.stats()}")

    def collect(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Outputs(outputs):
                    for output in outputs:
                        assert output.rid not in self.finish, "output after the end"
                        self.tokens[output.rid] += output.token_ids
                        self.cached[output.rid] = output.cached_tokens
                        self.logprobs.setdefault(output.rid, []).extend(output.logprobs)
                        self.prompt_logprobs.setdefault(output.rid, []).extend(
                            output.prompt_logprobs
                        )
                        self.probed.setdefault(output.rid, []).extend(output.probed)
                        if output.finish:
                            self.finish[output.rid] = output.finish
                case Aligned(rid=rid, weights=weights):
                    self.aligned[rid] = weights
                case Verified(rid=rid):
                    self.verified[rid] = event
                case Embedded(rid=rid, vector=vector):
                    self.embeddings[rid] = np.frombuffer(vector, dtype="<f4").tolist()
                    self.cached[rid] = event.cached_tokens
                case Rejected(rid=rid):
                    assert rid not in self.finish
                    self.rejected[rid] = event
                case CacheFlushed(done=done):
                    self.flushes.append(done)
                case AdapterLoaded(call=call, identity=identity):
                    self.identities[call] = identity
                case AdapterDone(call=call):
                    self.done_calls.append(call)
                case AdapterRefused(call=call):
                    self.refused[call] = event
                case AdapterPlaces():
                    self.places = event

    def cached_len(self, key: Sequence[int], namespace: bytes = b"") -> int:
        return self.kv.cache.prefix_len(np.array(key, dtype=np.int32), namespace)

    def check_ownership(self) -> None:
        """Each page is free, in the tree, or owned by exactly one request."""
        kv, scheduler = self.kv, self.scheduler
        holding = {
            id(req): req for req in [*scheduler.planner.prefilling, *scheduler.planner.running]
        }
        if scheduler.in_flight:  # requests that ended during a step hold their pages until its end
            launched = scheduler.in_flight
            reqs = [*launched.decodes, *(row.req for row in launched.rows)]
            holding |= {id(req): req for req in reqs if req.is_admitted}
        nodes = dict.fromkeys(kv.cache.nodes())
        for req in holding.values():  # some may have left the tree under them
            assert req.node is not None
            nodes |= dict.fromkeys(req.node.path_up())
            if req.source_node is not None:
                nodes |= dict.fromkeys(req.source_node.path_up())
        held = [node.pages for node in nodes if node.pages is not None]
        owners = [page for pages in held for page in pages.tolist()]
        assert len(owners) == kv.cache.evictable_pages + kv.cache.protected_pages
        for req in holding.values():
            owners += kv.rows.pages[req.row, kv.tree_pages(req) : req.num_pages].tolist()
        assert len(set(owners)) == len(owners), "a page has two owners"
        assert len(owners) + kv.allocator.num_free == kv.allocator.num_pages
        if kv.windows and kv.sight:
            self._check_window_pages(kv.windows, kv.sight, owners, list(holding.values()))
        if kv.host and kv.host.windows:
            self._check_host_windows(kv.host.windows.kept)

    def _check_tables(self, batch: ForwardBatch) -> None:
        """The page tables, which are kept from step to step, are those that gathering the rows'
        pages anew would make."""
        planner, windows = self.scheduler.planner, self.kv.windows
        reqs = {req.row: req for req in [*planner.prefilling, *planner.running]}
        for index, row in enumerate(batch.req_rows.tolist()):
            count = -(-int(batch.seq_lens[index]) // batch.page_size)
            pages = self.kv.rows.pages[row, :count]
            assert np.array_equal(batch.page_table[index, :count], pages)
            if windows:
                assert batch.window_table is not None
                expected = windows.window_of[pages]
                expected[: reqs[row].window_first] = -1
                assert np.array_equal(batch.window_table[index, :count], expected)

    def _check_host_windows(self, kept: WindowPages) -> None:
        """Each window page of the host is free or belongs to one host page of a prefix."""
        held = [node.host_pages for node in self.kv.cache.nodes() if node.host_pages is not None]
        pages = np.concatenate(held) if held else np.empty(0, dtype=np.int32)
        assert np.count_nonzero(kept.has(pages)) == np.count_nonzero(kept.window_of >= 0)
        assert kept.num_lost == 0

    def _check_window_pages(
        self, windows: WindowPages, sight: WindowSight, owned: list[int], holding: list[Req]
    ) -> None:
        """Each window page is free or belongs to one page in use. The pages that running requests
        see are pinned and have window pages."""
        held = windows.window_of[owned]
        held = held[held >= 0]
        assert len(held) == np.count_nonzero(windows.window_of >= 0), "of a page that is free"
        assert len(np.unique(held)) == len(held), "a window page belongs to two pages"
        assert len(held) + windows.allocator.num_free == windows.allocator.num_pages
        pins = np.zeros_like(windows.pins)
        for req in holding:
            pins[self.kv.rows.pages[req.row, req.window_first : req.window_end]] += 1
            assert req.window_end - req.window_first <= sight.most(req.num_tokens, 1)
        assert np.array_equal(pins, windows.pins)
        assert windows.num_pinned == np.count_nonzero(pins)
        assert (windows.window_of[pins > 0] >= 0).all(), "a page within a window is released"
