"""Two tiny tokenizers, byte-level and SentencePiece, built here and saved like a model's."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

CORPUS = ["the quick brown fox jumps over the lazy dog", "Grüße, 世界! 🙂🙃", "a  b\n\n\tc"] * 3
SPECIAL = ["<s>", "</s>", "<unk>"]


def byte_level() -> Tokenizer:
    """Like GPT-2, Llama 3 and Qwen: every byte is a character of an alphabet."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece() -> Tokenizer:
    """Like Llama 2 and Gemma: spaces are ▁, and rare characters fall back to bytes."""
    words = sorted({char for text in CORPUS[:1] for char in text.replace(" ", "▁")})
    vocab = {token: i for i, token in enumerate(SPECIAL)}
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    vocab |= {char: len(vocab) + i for i, char in enumerate(words)}
    vocab["▁t"] = len(vocab)
    vocab["▁th"] = len(vocab)
    merges = [("▁", "t"), ("▁t", "h")]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", vocab["<s>"])]
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, **config: object) -> Path:
    """A model directory with this tokenizer and `tokenizer_config.json` values."""
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder
