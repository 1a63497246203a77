"""`TransformersCausalLM`: any decoder of the transformers library, over our paged pool.

The library's modules compute everything except attention, which they call through its attention
interface. Before a model serves, three steps check that this works: its config and class
(`admission`), its calls to attention in a run without values (`probe`), and a comparison of a few
tokens with the unmodified model (`proof`).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel, mismatch
from pando_worker.models.transformers_backend.admission import admitted
from pando_worker.models.transformers_backend.head import Head
from pando_worker.models.transformers_backend.interface import SERVING, AttentionStep, Site
from pando_worker.models.transformers_backend.known import refused
from pando_worker.models.transformers_backend.probe import PROBING, Found, TrialRun
from pando_worker.models.transformers_backend.proof import PROOF_SLOTS, prove
from pando_worker.models.transformers_backend.rotary import pin_frequencies

log = logging.getLogger("pando.worker.models")


class TransformersCausalLM(nn.Module):
    """Like `layers.causal_lm.CausalLM`, on one rank."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, context_length: int) -> None:
        """Creates the model without memory for parameters.

        Raises:
            UnsupportedModel: transformers lacks it, or its attention cannot be served from pages.
            BrokenCheckpoint: transformers cannot read the config.
        """
        super().__init__()
        self._config = config
        self._dtype = dtype
        self._context_length = context_length
        self._step = AttentionStep()
        with _refusals(config):
            self._library_config, self._model_type = admitted(config.path, config.architecture)
            self._model, self._found = self._probed()
        self._head = Head(self._model)
        self.attention_layers = [found.layer for found in self._found]

    @torch.inference_mode()
    def forward(self, input_ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
        """Final hidden states, [num_tokens, hidden_size].

        Args:
            input_ids, positions: [num_tokens]
            attention: planned for this batch
        """
        self._step.backend = attention
        hidden: Tensor = self._model.base_model(
            input_ids=input_ids[None], position_ids=positions[None], use_cache=False
        ).last_hidden_state
        return hidden[0]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of final hidden states [n, hidden_size]: float32 [n, vocab_size]."""
        return self._head.logits(hidden)[:, : self._config.vocab_size]

    def load(self, model_dir: Path, device: torch.device) -> None:
        """Read the weights; transformers renames and merges them as its modules require.

        Raises:
            BrokenCheckpoint: they cannot be read or do not match the config.
            UnsupportedModel: our attention and the model's own give different results.
        """
        self._model = self._loaded(model_dir).to(device)
        self._head = Head(self._model)
        pin_frequencies(self._model, self._context_length)
        self.attention_layers = [self._with_sinks(found) for found in self._found]
        for found, layer in zip(self._found, self.attention_layers, strict=True):
            self._model.get_submodule(found.module).pando_site = Site(layer, self._step)
        with _refusals(self._config):
            prove(
                self._model,
                lambda ids, positions, attention: self.logits(self(ids, positions, attention)),
                TokenToKVPool(self.attention_layers, PROOF_SLOTS, self._dtype, device),
                self._config.vocab_size,
            )

    def _probed(self) -> tuple[Any, list[Found]]:
        config = self._library_config
        lengths = [value for value in config.to_dict().values() if isinstance(value, int)]
        probe = TrialRun(self._dtype, self._context_length, lengths)
        try:
            with torch.device("meta"):
                model = self._model_type._from_config(
                    config, dtype=self._dtype, attn_implementation=PROBING
                ).eval()
            # The only implementation of experts that does not read values.
            model.set_experts_implementation("batched_mm")
            pin_frequencies(model, self._context_length)
            found = probe.run(model, config.num_hidden_layers)
        except UnsupportedModel:
            raise
        except Exception as error:  # the library's modules may raise anything
            if isinstance(error, KeyError) and PROBING in str(error):
                reason = "its attention does not go through the attention interface"
            else:
                reason = f"it cannot be examined without weights: {error!r}"
            raise UnsupportedModel(reason) from error
        return model, found

    def _loaded(self, model_dir: Path) -> Any:
        transformers.logging.disable_progress_bar()
        try:
            model, report = self._model_type.from_pretrained(
                model_dir,
                config=self._library_config,
                dtype=self._dtype,
                attn_implementation=SERVING,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
        except Exception as error:  # errors of files, formats and shapes
            raise BrokenCheckpoint(f"transformers cannot load {model_dir}: {error}") from error
        absent = () if self._config.has_head else ("lm_head.weight",)
        missing = [name for name in report["missing_keys"] if name not in absent]
        unexpected = [
            name for name in report["unexpected_keys"] if not name.endswith("rotary_emb.inv_freq")
        ]
        if missing or unexpected:
            raise mismatch(model_dir, missing, unexpected)
        return model.requires_grad_(False)

    def _with_sinks(self, found: Found) -> AttentionLayer:
        if found.sinks is None:
            return found.layer
        return replace(found.layer, sinks=self._model.get_parameter(found.sinks))


@contextmanager
def _refusals(config: ModelConfig) -> Iterator[None]:
    """Adds the model's path and architecture to a refusal."""
    try:
        yield
    except UnsupportedModel as reason:
        raise refused(config, reason) from reason
