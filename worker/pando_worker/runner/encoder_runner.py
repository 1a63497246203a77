"""`EncoderRunner`: owns a text encoder, and runs the scheduler's batches: whole texts, which it
embeds or classifies. It has no KV pool."""

import logging
import time

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.whole import WholeAttention
from pando_worker.batch import ForwardBatch, Int32, StepResult
from pando_worker.cores import available_cores
from pando_worker.cuda.device import find_device
from pando_worker.models.config import ModelConfig, read_config
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.layers.text_encoder import Texts
from pando_worker.models.loading.building import build_text_encoder, weight_bytes
from pando_worker.models.loading.dummy import fill_at_random
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.loader import load_weights
from pando_worker.pools import Pools
from pando_worker.progress import Report, Stage, unreported
from pando_worker.runner.cpu.packing import pack
from pando_worker.runner.cpu.text_parts import TextParts, equal_parts
from pando_worker.runner.precision import chosen_dtype
from pando_worker.runner.sampling.pooling import pool
from pando_worker.settings import WorkerSettings
from pando_worker.tensors.transfer import HostCopy, to_device

log = logging.getLogger("pando.worker.runner")

PACKED_ROWS = 512  # tokens of a step for which matrices are packed: a dozen short texts, or a long


class EncoderRunner:
    """A `ModelRunner` on torch. On the CPU its calls are synchronous. Use it from one thread.

    Attributes:
        config: the model's shape
        context_length: tokens that a text may have
    """

    def __init__(self, settings: WorkerSettings, report: Report = unreported) -> None:
        """Load the model that the settings name.

        Raises:
            ModelError: the model is not found, not supported or broken.
        """
        started = time.monotonic()
        report(Stage.WEIGHTS, 0.0)
        if settings.device == "cpu":
            torch.set_num_threads(
                settings.threads or min(torch.get_num_threads(), available_cores())
            )
        model_dir = resolve_model(settings.model)
        self.config = read_config(model_dir, settings.model_impl)
        _check_settings(settings, self.config)
        self.context_length = settings.context_length or self.config.max_position_embeddings
        self._device, dtype = find_device(settings.device, 0, 1), chosen_dtype(settings)
        self._model = build_text_encoder(self.config, dtype, self._device, self.context_length)
        if settings.load_format == "dummy":
            fill_at_random(self._model, self._device)
        else:
            load_weights(self._model, model_dir, self._device, report=report)
        self._weight_bytes = weight_bytes(self._model)
        threads = 1
        if self._device.type == "cpu":
            pack(self._model, PACKED_ROWS)
            threads = torch.get_num_threads()
        self._parts = TextParts(threads) if threads > 1 else None
        self._attention = [
            WholeAttention(self._device, self._model.heads, dense_masks=self._model.has_biases)
            for _ in range(threads)
        ]
        self._settings = settings
        log.info("%s loaded in %.1f s as %s", model_dir, time.monotonic() - started, dtype)

    @property
    def pools(self) -> Pools:
        """What a scheduler needs. Pages stand for the tokens of the steps in flight: at most two,
        whose texts each leave a part of a page empty."""
        settings = self._settings
        page, step = settings.page_size, max(settings.chunked_prefill_size, self.context_length)
        tokens = 2 * step + settings.max_running_requests * page
        return Pools(
            capacity_tokens=-(-tokens // page) * page,
            context_length=self.context_length,
            weight_bytes=self._weight_bytes,
            whole_prompts=True,
        )

    @torch.inference_mode()
    def launch(self, batch: ForwardBatch) -> "EncoderStep":
        pooled = pool(self._hidden(batch), batch)
        assert pooled is not None, "a text encoder gets no other requests"
        if self._model.classifies:
            pooled = self._model.classify(pooled)
        return EncoderStep(HostCopy(pooled))

    def _hidden(self, batch: ForwardBatch) -> Tensor:
        """Final hidden states of a step's texts, [num_tokens, hidden_size]."""
        lengths = batch.extend_lens
        ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))

        @torch.inference_mode()  # which is each thread's own
        def encode(number: int, texts: slice) -> Tensor:
            tokens = slice(int(ends[texts.start]), int(ends[texts.stop]))
            attention = self._attention[number]
            attention.plan(lengths[texts])
            found: Tensor = self._model(self._texts(batch, tokens), attention)
            return found

        parts = equal_parts(lengths, len(self._attention))
        if self._parts is None or len(parts) == 1:
            return encode(0, slice(0, len(lengths)))
        return torch.cat(self._parts.run(parts, encode))

    def _texts(self, batch: ForwardBatch, tokens: slice) -> Texts:
        kinds = None if batch.kinds is None else to_device(batch.kinds[tokens], self._device)
        return Texts(
            ids=to_device(batch.input_ids[tokens], self._device),
            positions=to_device(batch.positions[tokens], self._device),
            kinds=kinds,
        )


class EncoderStep:
    """A batch that has been started."""

    def __init__(self, pooled: HostCopy) -> None:
        self._pooled = pooled

    def sample(self, mask: Int32 | None) -> None:
        """Nothing is sampled."""

    def result(self) -> StepResult:
        return StepResult(tokens=np.empty(0, dtype=np.int64), pooled=self._pooled.wait())


def _check_settings(settings: WorkerSettings, config: ModelConfig) -> None:
    """Raises UnsupportedModel for settings that text encoders do not have."""
    lacking = {
        f"tensor_parallel_size {settings.tensor_parallel_size}": settings.tensor_parallel_size > 1,
        f"quantization {settings.quantization}": settings.quantization not in ("auto", "none"),
        "max_loras": bool(settings.max_loras),
        "host_memory_gib": bool(settings.host_memory_gib),
        f"model_impl {settings.model_impl}": settings.model_impl == "transformers",
    }
    if refused := [name for name, is_set in lacking.items() if is_set]:
        raise UnsupportedModel(
            f"{config.path} ({config.architecture}) is a text encoder, which {refused[0]} is not"
            " for: they run on one rank, by Pando's own code, with floating-point weights, without"
            " adapters and without a KV pool"
        )
    longest = config.max_position_embeddings
    if (settings.context_length or 0) > longest:
        raise UnsupportedModel(
            f"context_length {settings.context_length} exceeds the {longest} tokens of a text of"
            f" {config.path.parent}"
        )
