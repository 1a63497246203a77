"""Tiny encoder-decoders with random weights, as transformers runs them."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from pando_worker.messages import Raw, SentArray, Source

MELS, POSITIONS = 8, 30
START = 3

Inputs = NDArray[np.float32] | NDArray[np.int32]


class SourceReference:
    """A model in float32, and the directory of its checkpoint."""

    def __init__(
        self,
        path: Path,
        model: PreTrainedModel,
        *,
        weights: float = 0.3,
        biases: float = 0.3,
        embedding: float = 0.1,
        seed: int = 0,
    ) -> None:
        """
        Args:
            weights, biases, embedding: standard deviations; such that outputs depend on all that
                they should, and do not just repeat a token
        """
        torch.manual_seed(seed)
        self.path = path
        self._greedy: dict[tuple[bytes, tuple[int, ...]], list[int]] = {}
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Biases start as zeros and norms as ones: make all of them count. The embedding is
                # the head as well.
                offset = 1.0 if (parameter == 1).all() else 0.0
                is_table = "embed_tokens" in name or "shared" in name or "lm_head" in name
                std = embedding if is_table else weights if parameter.ndim > 1 else biases
                parameter.normal_(std=std).add_(offset)
            for name, buffer in model.named_buffers():
                if name == "final_logits_bias":
                    buffer.normal_(std=0.1)
        model.save_pretrained(path)
        self.model = model.eval()

    def logits(self, source: Inputs, tokens: Sequence[int]) -> Tensor:
        """After each of the decoder's tokens, [len(tokens), vocab_size]."""
        name = "input_features" if source.ndim == 2 else "input_ids"
        inputs: dict[str, Any] = {name: torch.from_numpy(source)[None]}
        with torch.inference_mode():
            out = self.model(**inputs, decoder_input_ids=torch.tensor([list(tokens)]))
        logits: Tensor = out.logits[0]
        return logits

    def greedy(self, source: Inputs, prompt: Sequence[int], count: int) -> list[int]:
        known = self._greedy.setdefault((source.tobytes(), tuple(prompt)), [])
        while len(known) < count:
            known.append(int(self.logits(source, [*prompt, *known])[-1].argmax()))
        return known[:count]

    def source(self, seed: int) -> Inputs:
        """A random one."""
        size = (self.model.config.num_mel_bins, 2 * POSITIONS)
        return np.random.default_rng(seed).normal(size=size).astype("<f4")


def whisper(
    path: Path,
    *,
    vocab_size: int = 120,
    mels: int = MELS,
    encoder_layers: int = 2,
    decoder_layers: int = 2,
) -> SourceReference:
    config = WhisperConfig(
        vocab_size=vocab_size,
        num_mel_bins=mels,
        d_model=32,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=40,
        max_source_positions=POSITIONS,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=START,
    )
    return SourceReference(path, WhisperForConditionalGeneration(config))


class TextReference(SourceReference):
    def source(self, seed: int) -> Inputs:
        """One of 30 tokens, or of 17 for seed 3."""
        length = 17 if seed == 3 else POSITIONS
        return np.random.default_rng(seed).integers(4, 120, size=length).astype("<i4")


_TEXT = {
    "vocab_size": 120,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 64,
    "decoder_start_token_id": START,
}


def bart(path: Path) -> SourceReference:
    model = BartForConditionalGeneration(BartConfig(**_TEXT))
    # Of these weights float32 computes logits to 3e-4, a fiftieth of the least margin. With larger
    # ones it errs by 0.03, which decides tokens.
    return TextReference(path, model, weights=0.7, biases=0.1, embedding=0.3, seed=17)


def mbart(path: Path) -> SourceReference:
    config = MBartConfig(**_TEXT, scale_embedding=True, activation_function="relu")
    model = MBartForConditionalGeneration(config)
    return TextReference(path, model, weights=0.5, embedding=0.05)


_T5 = {
    "vocab_size": 120,
    "d_model": 32,
    "d_kv": 6,  # 4 heads of it are not d_model
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "n_positions": 64,
    # Few, so that a prompt of the tests has near distances, far ones, and some that are all alike.
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 20,
    "decoder_start_token_id": START,
}


def t5(path: Path) -> SourceReference:
    model = T5ForConditionalGeneration(T5Config(**_T5))
    return TextReference(path, model, embedding=0.05, seed=3)


def flan_t5(path: Path) -> SourceReference:
    """v1.1: with gates, and a head of its own."""
    config = T5Config(**_T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    return TextReference(path, model, weights=0.5)


MODELS: dict[str, Callable[[Path], SourceReference]] = {
    "whisper": whisper,
    "bart": bart,
    "mbart": mbart,
    "t5": t5,
    "flan-t5": flan_t5,
}


def sent(source: Inputs) -> Source:
    """As a request brings it."""
    data = np.ascontiguousarray(source)
    return Source(
        digest=blake2b(data.tobytes(), digest_size=16).digest(),
        length=source.shape[-1] // (source.ndim),
        array=SentArray(data.dtype.str, data.shape, Raw(memoryview(data.tobytes()))),
    )
