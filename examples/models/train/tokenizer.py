"""The model's tokenizer: byte-level BPE (any text comes back as it went in), five special tokens.

Nothing is added around a plain text; the chat template in `chat_template.jinja` writes `<|bos|>`.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 3072
MAX_LENGTH = 4096
PAD, BOS, END, ROLE, CONTENT = "<|pad|>", "<|bos|>", "<|end|>", "<|role|>", "<|content|>"
SPECIAL_TOKENS = [PAD, BOS, END, ROLE, CONTENT]  # their ids are 0 to 4


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=END,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
        chat_template=Path(__file__).with_name("chat_template.jinja").read_text(),
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes the files, with the class name that earlier versions of transformers know too."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(config, indent=2) + "\n")
