"""`TorchModelRunner`: owns the weights and the KV pool, and runs the scheduler's batches."""

import gc
import logging
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch, SourceRows
from pando_worker.cores import available_cores
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.sampling import best_by, forbid_by, totals_by
from pando_worker.cuda.device import most_bytes
from pando_worker.models.config import ModelConfig
from pando_worker.models.kinds.encoder_decoder import AudioInput, source_positions
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.parallel import ParallelGroup
from pando_worker.pools import Pools, SourceForm
from pando_worker.progress import Report, Stage, unreported
from pando_worker.runner.adapters.loader import AdapterLoader
from pando_worker.runner.adapters.pace import Pace
from pando_worker.runner.adapters.step import head_tokens, lora_tokens
from pando_worker.runner.alignment import Aligner, alignment_heads
from pando_worker.runner.cpu.cpu_path import choose_cpu_path
from pando_worker.runner.cpu.cpu_tape import DecodeTapes
from pando_worker.runner.cpu.packing import pack
from pando_worker.runner.cpu.race import NotedOps
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner
from pando_worker.runner.cuda.cuda_path import choose_attention, choose_sampling_ops
from pando_worker.runner.cuda.graphs import capture_graphs
from pando_worker.runner.cuda.piecewise_graph import PiecewiseGraphs
from pando_worker.runner.image_embeddings import ImageEmbeddings
from pando_worker.runner.kv.host_pool import HostKVPool, make_host_pool
from pando_worker.runner.kv_scales import choose_scales
from pando_worker.runner.loading import LoadedModel, load_model
from pando_worker.runner.sampling.choices import choose
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.sampling.histories import Histories
from pando_worker.runner.sampling.logprobs import probed_logprobs, prompt_logprobs
from pando_worker.runner.sampling.ops import SamplingOps
from pando_worker.runner.sampling.pooling import pool
from pando_worker.runner.sampling.step import TorchStep
from pando_worker.runner.step_memory import LargestSteps
from pando_worker.runner.trial import trial_batch
from pando_worker.settings import WorkerSettings
from pando_worker.tensors.transfer import to_device

log = logging.getLogger("pando.worker.runner")


class TorchModelRunner:
    """A `ModelRunner` on torch. On the CPU its calls are synchronous. Use it from one thread.

    Attributes:
        config: the model's shape
        capacity_tokens: size of the KV pool, a multiple of the page size
        context_length: tokens that a request may have
        kv_pool: the keys and values, in slots that the scheduler assigns
        host_pool: keys and values in host memory
        attention: computes attention, except in steps recorded in `graphs`
        graphs: recorded decode steps; None without any
        pieces: recorded steps but for attention; None without any
        adapters: on rank 0, loads LoRA adapters; None if there are none
        lora: this rank's memory of adapters; None if there are none
    """

    def __init__(
        self,
        settings: WorkerSettings,
        group: ParallelGroup | None = None,
        report: Report = unreported,
    ) -> None:
        """Load the model, size the pool, and choose the fastest code by trial.

        Args:
            group: the ranks that share the model; by default only this one.
            report: called with what is being done

        Raises:
            ModelError: the model is not found, not supported, broken or does not fit.
        """
        self._group = group or ParallelGroup()
        self._page_size = settings.page_size
        threads = settings.threads or min(torch.get_num_threads(), available_cores())
        torch.set_num_threads(max(1, threads // self._group.size))
        loaded = load_model(settings, self._group, report)
        self.config, self.context_length = loaded.config, loaded.context_length
        self._model, self._device = loaded.model, loaded.device
        self._dtype, self._source = loaded.dtype, _source_form(loaded.config, loaded.context_length)
        self._weight_bytes = loaded.weight_bytes
        self.lora = loaded.lora
        self.adapters: AdapterLoader | None = None
        on_all_cores = loaded.device.type == "cpu" and threads >= available_cores()
        self._pace = Pace(shares_cores=on_all_cores)
        if loaded.lora is not None:
            layouts = self._group.gather(loaded.lora.layout)
            if self._group.rank == 0:
                self.adapters = AdapterLoader(
                    loaded.lora,
                    layouts,
                    host_bytes=settings.lora_host_mib * 2**20,
                    model_dir=loaded.config.path.parent if loaded.from_files else None,
                    pace=self._pace,
                )
        self._images = ImageEmbeddings(loaded.tower, self._group) if loaded.tower else None
        self._image_tokens = loaded.image_tokens
        self._whole_image_tokens = loaded.whole_image_tokens
        self.graphs: CudaGraphRunner | DecodeTapes | None = None
        self.pieces: PiecewiseGraphs | None = None
        if loaded.device.type == "cuda":
            report(Stage.MEMORY, 0.0)
            loaded = self._with_sized_pool(settings, loaded)
        message = "KV pool of %d tokens as %s: %s"
        log.info(message, loaded.capacity_tokens, loaded.plan.dtype, loaded.plan.budget)
        report(Stage.KERNELS, 0.0)
        plain = self._prepare(settings, loaded)
        if self.kv_pool.is_fp8 and self._source is None:
            most = settings.chunked_prefill_size
            choose_scales(loaded, self._page_size, most, self._run_with)
        self.host_pool = make_host_pool(loaded.kv_pool, settings, self._group)
        if loaded.device.type == "cpu":
            self._choose_cpu_path(settings, loaded, plain)
            if isinstance(loaded.model, EncoderDecoder) and self._source is not None:
                pack(loaded.model.encoder_side, self._source.positions)
        self._warm_up()
        if loaded.device.type == "cuda":
            report(Stage.GRAPHS, 0.0)
            self.graphs, self.pieces = capture_graphs(
                settings, loaded, self.attention, self._futures, report
            )

    def _prepare(self, settings: WorkerSettings, loaded: LoadedModel) -> TorchAttention:
        """Set up all that depends on the pool; returns torch's attention."""
        self.kv_pool, self.capacity_tokens = loaded.kv_pool, loaded.capacity_tokens
        self.host_pool = HostKVPool(loaded.kv_pool, settings.page_size, 0)
        self._futures = FutureTokens(settings.max_running_requests, loaded.device)
        longest = min(loaded.context_length, loaded.capacity_tokens)
        self._histories = Histories(settings.max_running_requests, longest, loaded.device)
        self._aligner: Aligner | None = None
        if isinstance(loaded.model, EncoderDecoder):
            layers = loaded.model.attention_layers
            heads = layers[0].heads * self._group.size
            found = alignment_heads(loaded.config.path.parent, len(layers), heads)
            self._aligner = Aligner(loaded.model, loaded.kv_pool, found, self._group)
        plain = TorchAttention(loaded.kv_pool, loaded.dtype)
        self.attention: AttentionBackend = plain
        if loaded.device.type == "cuda":
            self.attention = choose_attention(settings, loaded, plain, self._group)
        self._sampling_ops = choose_sampling_ops(self.attention)
        return plain

    def _with_sized_pool(self, settings: WorkerSettings, loaded: LoadedModel) -> LoadedModel:
        """The model with a pool in the memory that its largest steps leave."""

        def run() -> None:
            plain = self._prepare(settings, loaded)
            self.run_trial(loaded.steps)
            self.attention = plain  # without flashinfer's workspaces

        step_bytes = most_bytes(run, loaded.device)
        loaded.kv_pool.release()
        gc.collect()
        torch.cuda.empty_cache()
        return loaded.with_pool(loaded.plan.beside(step_bytes, self._group))

    def run_trial(self, steps: LargestSteps) -> None:
        """Run each of these steps twice. Each is kept while the next one is planned and runs, as
        steps of requests are. The pool, which must have no owners, is cleared before, as they read
        slots that no step wrote."""
        self.kv_pool.clear()
        size, kept = self._page_size, None
        pages, window_pages = self.capacity_tokens // size, self.kv_pool.window_slots // size
        for batch in steps.batches(pages, window_pages):
            for _ in range(2):
                step = self.launch(batch)
                step.sample(steps.mask)
                kept = step  # noqa: F841

    @property
    def pools(self) -> Pools:
        """The sizes of the pools that a scheduler allocates from."""
        kv, host = self.kv_pool, self.host_pool
        return Pools(
            weight_bytes=self._weight_bytes,
            capacity_tokens=self.capacity_tokens,
            context_length=self.context_length,
            image_tokens=self._image_tokens,
            whole_image_tokens=self._whole_image_tokens,
            window=kv.window,
            keeps_tables=self._group.size > 1 or isinstance(self.attention, FlashinferAttention),
            window_pages=kv.window_slots // self._page_size,
            adapter_slots=0 if self.lora is None else len(self.lora.slot_pages),
            adapter_pages=0 if self.lora is None else len(self.lora.pages),
            source=self._source,
            host_pages=host.num_pages,
            host_window_pages=host.num_window_pages,
            host_page_bytes=host.page_bytes,
            copy_rate=host.rate,
        )

    @torch.inference_mode()
    def launch(self, batch: ForwardBatch) -> TorchStep:
        self._pace.step()
        self.host_pool.copy(batch)
        self._use_adapters(batch)
        scores = probed = pooled = choices = None
        aligned: list[Tensor] = []
        if (logits := self._replay(batch)) is None:
            if batch.aligned is not None:
                assert self._aligner is not None
                self._aligner.begin()
            hidden = self._run(batch)
            if batch.aligned is not None and self._aligner is not None:
                aligned = self._aligner.end(batch, batch.aligned)
            head = partial(self._logits, batch, hidden)
            if batch.scores is not None:
                scores = prompt_logprobs(head, batch.scores, self.config.vocab_size, self._device)
            if batch.probed is not None:
                probed = probed_logprobs(head, batch.probed, self._device)
            if batch.chosen is not None:
                choices = choose(head, batch.chosen, self.config.vocab_size, self._sampling_ops)
            logits, pooled = self._head(batch, hidden), pool(hidden, batch)
            if pooled is not None and isinstance(self._model, CausalLM):
                pooled = self._model.classify(pooled)
        failed_images: frozenset[bytes] = frozenset()
        if self._images is not None and batch.images is not None:
            failed_images = self._images.failed(batch.images)
        return TorchStep(
            batch,
            logits,
            scores,
            probed,
            pooled,
            aligned,
            choices,
            self._futures,
            self._histories,
            self._group,
            self._sampling_ops,
            failed_images,
        )

    @torch.inference_mode()
    def logits(self, batch: ForwardBatch) -> Tensor:
        """Run a batch; float32 [num_samples, vocab_size], on the model's device."""
        self._use_adapters(batch)
        replayed = self._replay(batch)
        return self._head(batch, self._run(batch)) if replayed is None else replayed

    def _use_adapters(self, batch: ForwardBatch) -> None:
        if self.lora is not None:
            self.lora.step = lora_tokens(batch, self.lora)

    @property
    def _adapters_are_linear(self) -> bool:
        """Whether the step's adapters, if any, change nothing but linear layers: as recorded."""
        step = None if self.lora is None else self.lora.step
        return step is None or step.linear_alone

    def _replay(self, batch: ForwardBatch) -> Tensor | None:
        """Logits of a batch from a recorded step, like those of any other."""
        if self.graphs is None or batch.scores is not None or batch.pooled is not None:
            return None
        if batch.probed is not None or batch.aligned is not None or batch.chosen is not None:
            return None
        if batch.sources is not None and batch.sources.encode:
            return None
        if batch.images is not None:
            return None  # an image's last token alone in a row looks like a decode
        if self._device.type == "cuda" and batch.has_loads:
            return None  # a graph cannot wait for each layer's keys
        if not self._adapters_are_linear or (logits := self.graphs.run(batch)) is None:
            return None
        sampled = batch.sample_rows
        if len(sampled) == len(logits):
            return logits
        return logits[to_device(sampled, self._device)]

    def _run(self, batch: ForwardBatch) -> Tensor:
        """Run the model: final hidden states, [num_tokens, hidden_size]. Writes to the KV pool."""
        if self.pieces is not None and batch.images is None and self._adapters_are_linear:
            replayed = self.pieces.run(batch)
            if replayed is not None:
                return replayed
        self.attention.plan(batch)
        if batch.sources is not None and batch.sources.encode:
            self._encode(batch.sources)
        inputs = (
            self._futures.resolve(batch.input_ids),
            to_device(batch.positions, self._device),
            self.attention,
        )
        hidden: Tensor
        if batch.images is None:
            hidden = self._model(*inputs)
        else:
            assert self._images is not None, "a model without a vision tower gets no images"
            hidden = self._model(*inputs, self._images.of(batch.images))
        return hidden

    def _run_with(self, batch: ForwardBatch, attention: AttentionBackend) -> None:
        """Run a step with `attention` instead of the usual one, before there are requests."""
        usual, self.attention = self.attention, attention
        self._use_adapters(batch)
        self._run(batch)
        self.attention = usual

    def _encode(self, sources: SourceRows) -> None:
        """Run the encoder, as the step's attention was planned."""
        assert isinstance(self._model, EncoderDecoder), "no other model gets sources"
        # Copies, as torch wants memory that may be written.
        arrays = [to_device(source.array.copy(), self._device) for source in sources.encode]
        inputs = [x.to(self._dtype if x.is_floating_point() else torch.int64) for x in arrays]
        self._model.encode(inputs, self.attention)

    def _head(self, batch: ForwardBatch, hidden: Tensor) -> Tensor:
        """Logits after each sampled row, float32 [num_samples, vocab_size]."""
        last = np.cumsum(batch.extend_lens, dtype=np.int64)[batch.sample_rows] - 1
        return self._logits(batch, hidden, last)

    def _logits(self, batch: ForwardBatch, hidden: Tensor, tokens: NDArray[np.int64]) -> Tensor:
        """Logits after some of the step's tokens, float32 [n, vocab_size]."""
        if not np.array_equal(tokens, np.arange(len(hidden))):  # equal if all rows decode
            hidden = hidden[to_device(tokens, self._device)]
        if self.lora is None:
            return self._model.logits(hidden)
        self.lora.heads = head_tokens(batch, tokens, self.lora)
        try:
            return self._model.logits(hidden)
        finally:
            self.lora.heads = None  # recorded steps have none

    def _choose_cpu_path(
        self, settings: WorkerSettings, loaded: LoadedModel, plain: TorchAttention
    ) -> None:
        page_size, windows = self._page_size, bool(loaded.kv_pool.windowed)
        recorded = self._group.size == 1  # ranks synchronise within a step
        cached = min(page_size, self.context_length) - 1

        def decodes(rows: int) -> ForwardBatch:
            return trial_batch(
                cached=cached,
                extend=1,
                page_size=page_size,
                rows=rows,
                windows=windows,
                source=self._source,
            )

        def weights() -> list[Tensor]:
            loaded.ops.use(noted := NotedOps())
            self.logits(decodes(1))
            return noted.weights

        chosen = choose_cpu_path(
            settings.cpu_kernels,
            plain=plain,
            pool=loaded.kv_pool,
            dtype=loaded.dtype,
            quantized=loaded.quantized,
            weights=weights,
            recorded=recorded,
            decodes=decodes,
        )
        loaded.ops.use(chosen.ops)
        self.attention = fast = chosen.attention
        if not isinstance(fast, CpuAttention):
            return
        by = (fast.kernels, fast.threads)
        self._sampling_ops = SamplingOps(
            best=best_by(*by), totals=totals_by(*by), forbid=forbid_by(*by)
        )
        if recorded:
            pages = -(-self.context_length // page_size)
            source_pages = -(-self._source.positions // page_size) if self._source else 0
            self.graphs = DecodeTapes(
                loaded.next_logits, fast, self._futures, pages, loaded.lora, source_pages
            )

    def _warm_up(self) -> None:
        """Run one prefill and one decode, so that the first request does not pay for starting
        threads and kernels. They leave garbage in pages that nobody owns yet."""
        page_size = self._page_size
        tokens = min(max(2, page_size), self.context_length, self.capacity_tokens)
        windows = bool(self.kv_pool.windowed)
        for cached, extend in ((0, tokens), (tokens - 1, 1)):
            batch = trial_batch(
                cached=cached,
                extend=extend,
                page_size=page_size,
                windows=windows,
                source=self._source,
                encodes=extend > 1,
            )
            self.launch(batch).sample(None)


def _source_form(config: ModelConfig, context_length: int) -> SourceForm | None:
    encoder = config.encoder
    if encoder is None:
        return None
    return SourceForm(
        positions=source_positions(encoder, context_length),
        mel_bins=encoder.mel_bins if isinstance(encoder, AudioInput) else 0,
        vocab_size=config.vocab_size,
    )
