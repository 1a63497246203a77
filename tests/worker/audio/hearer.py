"""A tiny Whisper with random weights, and what transformers makes of sound with it.

Its windows have 3 s. Its text tokens are the 256 bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from tests.worker.audio.sounds import RATE, Wave

WINDOW_S = 3
POSITIONS = 50 * WINDOW_S
END = 256
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|ja|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]
IDS = {name: END + index for index, name in enumerate(SPECIAL)}
FIRST_TIMESTAMP = END + len(SPECIAL)
MOST = 48
"""Tokens of a prompt and its output."""


@dataclass(frozen=True)
class Hearer:
    path: Path

    @cached_property
    def model(self) -> WhisperForConditionalGeneration:
        return WhisperForConditionalGeneration.from_pretrained(self.path).eval()

    @cached_property
    def extractor(self) -> WhisperFeatureExtractor:
        return WhisperFeatureExtractor.from_pretrained(self.path)

    def segments(self, wave: Wave, *, masked: bool = False, **options: Any) -> list[dict[str, Any]]:
        """By transformers' sequential algorithm, without fall-back to higher temperatures.

        Args:
            masked: whether it knows which frames are padding
        """
        is_long = len(wave) > WINDOW_S * RATE
        inputs = self.extractor(
            wave,
            sampling_rate=RATE,
            return_tensors="pt",
            return_attention_mask=True,
            **({"truncation": False, "padding": "longest"} if is_long else {}),
        )
        if masked:
            options["attention_mask"] = inputs.attention_mask
        with torch.inference_mode():
            found = self.model.generate(
                inputs.input_features,
                return_timestamps=True,
                return_segments=True,
                **{"language": "en", "task": "transcribe"} | options,
            )
        segments: list[dict[str, Any]] = found["segments"][0]
        return segments

    def untimed(self, wave: Wave, **options: Any) -> list[int]:
        """The tokens of a short file, without time stamps."""
        features = self.extractor(wave, sampling_rate=RATE, return_tensors="pt").input_features
        with torch.inference_mode():
            ids = self.model.generate(
                features, **{"language": "en", "task": "transcribe"} | options
            )[0].tolist()
        return [token for token in ids if token < END]

    def windows(self, wave: Wave) -> int:
        """How often transformers encodes while it hears a short file without time stamps. Random
        weights predict them all the same, and the next window begins at the last pair."""
        encoded: list[object] = []
        hook = self.model.get_encoder().register_forward_hook(lambda *_: encoded.append(None))
        try:
            self.untimed(wave)
        finally:
            hook.remove()
        return len(encoded)

    def language(self, wave: Wave) -> str:
        features = self.extractor(wave, sampling_rate=RATE, return_tensors="pt").input_features
        (token,) = self.model.detect_language(input_features=features[:, :, : 2 * POSITIONS])
        return SPECIAL[int(token) - END].strip("<|>")


def text_of(tokens: Sequence[int]) -> str:
    """Bytes are their tokens, in the order of GPT-2's alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled = "".join(alphabet[token] for token in tokens if token < END)
    return str(decoders.ByteLevel().decode([spelled]))


_GENERATION = {
    "alignment_heads": [[0, 1], [1, 2]],
    "begin_suppress_tokens": [220, END],
    "bos_token_id": END,
    "decoder_start_token_id": IDS["<|startoftranscript|>"],
    "eos_token_id": END,
    "is_multilingual": True,
    "lang_to_id": {name: IDS[name] for name in ("<|en|>", "<|de|>", "<|ja|>")},
    "max_initial_timestamp_index": 50,
    "max_length": MOST,
    "no_timestamps_token_id": IDS["<|notimestamps|>"],
    "pad_token_id": END,
    "prev_sot_token_id": IDS["<|startofprev|>"],
    "suppress_tokens": [7, *list(IDS.values())[1:-1]],
    "task_to_id": {name: IDS[f"<|{name}|>"] for name in ("transcribe", "translate")},
}


def save_hearer(path: Path) -> Hearer:
    _save_tokenizer(path)
    WhisperFeatureExtractor(feature_size=8, chunk_length=WINDOW_S).save_pretrained(path)
    torch.manual_seed(1)
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=FIRST_TIMESTAMP + POSITIONS + 1,
            num_mel_bins=8,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=40,
            max_source_positions=POSITIONS,
            max_target_positions=MOST,
            pad_token_id=END,
            bos_token_id=END,
            eos_token_id=END,
            decoder_start_token_id=IDS["<|startoftranscript|>"],
            suppress_tokens=None,
            begin_suppress_tokens=None,
        )
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            offset = 1.0 if (parameter == 1).all() else 0.0
            parameter.normal_(std=0.3 if "embed_tokens" in name else 0.6).add_(offset)
    model.save_pretrained(path)
    (path / "generation_config.json").write_text(json.dumps(_GENERATION))
    return Hearer(path)


def _save_tokenizer(path: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(BPE({letter: id for id, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=SPECIAL[0],
        bos_token=SPECIAL[0],
        unk_token=SPECIAL[0],
        additional_special_tokens=SPECIAL[1:],
    )
    tokenizer.add_tokens([f"<|{0.02 * at:.2f}|>" for at in range(POSITIONS + 1)])
    assert np.all([tokenizer.convert_tokens_to_ids(name) == id for name, id in IDS.items()])
    tokenizer.save_pretrained(path)
