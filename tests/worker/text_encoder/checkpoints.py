"""Tiny text encoders with random weights, as transformers runs them, with tokenizers of each
kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertModel,
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetForSequenceClassification,
    MPNetModel,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

VOCAB = 160
CORPUS = ["the quick brown fox jumps over the lazy dog", "trees grow slowly; stones do not"] * 4


@dataclass(frozen=True, slots=True)
class Case:
    """A family's classes."""

    base: Callable[[], PreTrainedModel]
    classifier: Callable[[int], PreTrainedModel]
    masked: Callable[[], PreTrainedModel]
    tokenizer: Callable[[], Tokenizer]
    longest: int  # of its texts, in tokens


def word_piece() -> Tokenizer:
    """Like BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCAB, special_tokens=special, show_progress=False
    )
    return _trained(tokenizer, trainer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")


def byte_level() -> Tokenizer:
    """Like RoBERTa's and ModernBERT's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False
    )
    return _trained(tokenizer, trainer, "<s> $A </s>", "<s> $A </s> </s> $B </s>")


def unigram() -> Tokenizer:
    """Like XLM-RoBERTa's."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=80,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    return _trained(tokenizer, trainer, "<s> $A </s>", "<s> $A </s> </s> $B </s>")


def _trained(tokenizer: Tokenizer, trainer: Any, single: str, pair: str) -> Tokenizer:
    tokenizer.train_from_iterator(CORPUS, trainer)
    marks = sorted({mark.partition(":")[0] for mark in pair.split() if "$" not in mark})
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(mark, tokenizer.token_to_id(mark)) for mark in marks],
    )
    return tokenizer


_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def _bert(**more: Any) -> BertConfig:
    return BertConfig(**_SHAPE, max_position_embeddings=90, **more)


def roberta_config(**more: Any) -> RobertaConfig:
    return RobertaConfig(**_SHAPE, max_position_embeddings=92, **({"type_vocab_size": 1} | more))


def _xlm_roberta(**more: Any) -> XLMRobertaConfig:
    return XLMRobertaConfig(**_SHAPE, max_position_embeddings=92, type_vocab_size=1, **more)


def _mpnet(**more: Any) -> MPNetConfig:
    return MPNetConfig(**_SHAPE, max_position_embeddings=92, **more)


def _modernbert(**more: Any) -> ModernBertConfig:
    marks = dict.fromkeys(("pad", "eos", "bos", "cls", "sep"), 0)
    ids = {f"{mark}_token_id": id for mark, id in marks.items()}
    return ModernBertConfig(
        **_SHAPE, **ids, max_position_embeddings=600, local_attention=16, **more
    )


def _case(
    form: Callable[..., PretrainedConfig],
    base: Callable[[Any], PreTrainedModel],
    classifier: Callable[[Any], PreTrainedModel],
    masked: Callable[[Any], PreTrainedModel],
    tokenizer: Callable[[], Tokenizer],
    *,
    longest: int = 90,
    **of_classifier: Any,
) -> Case:
    return Case(
        base=lambda: base(form()),
        classifier=lambda labels: classifier(form(num_labels=labels, **of_classifier)),
        masked=lambda: masked(form()),
        tokenizer=tokenizer,
        longest=longest,
    )


CASES = {
    "bert": _case(_bert, BertModel, BertForSequenceClassification, BertForMaskedLM, word_piece),
    "roberta": _case(
        roberta_config,
        RobertaModel,
        RobertaForSequenceClassification,
        RobertaForMaskedLM,
        byte_level,
    ),
    "xlm-roberta": _case(
        _xlm_roberta,
        XLMRobertaModel,
        XLMRobertaForSequenceClassification,
        XLMRobertaForMaskedLM,
        unigram,
    ),
    "mpnet": _case(
        _mpnet, MPNetModel, MPNetForSequenceClassification, MPNetForMaskedLM, word_piece
    ),
    "modernbert": _case(
        _modernbert,
        ModernBertModel,
        ModernBertForSequenceClassification,
        ModernBertForMaskedLM,
        byte_level,
        longest=600,
        classifier_pooling="mean",
    ),
}


def save(folder: Path, model: PreTrainedModel, tokenizer: Tokenizer, *, seed: int = 0) -> Path:
    """Give the model random weights that all count, and write it like a checkpoint."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start as zeros and norms as ones: make all of them count.
            offset = 1.0 if (parameter == 1).all() else 0.0
            parameter.normal_(std=0.3).add_(offset)
    model.eval().save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def hidden_states(model: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """Of the last layer, [tokens, hidden_size]."""
    with torch.inference_mode():
        found: Tensor = model(torch.tensor([list(ids)])).last_hidden_state[0]
    return found
