"""The tokenizer in llguidance's form: the bytes of each token id, and how text becomes tokens.

The bytes come from the detokenizer's own table, so a mask never allows a token that would be shown
as different text. Special tokens have no bytes: a grammar must name them by id. An added token that
is not special, such as `<tool_call>`, spells its text.
"""

from collections.abc import Set
from typing import Any

import msgspec
from tokenizers import Tokenizer

from pando_worker.tokenizer.detokenizer import Vocabulary

_BYTES_OF_TEXT = frozenset(range(0xF5)) - {0xC0, 0xC1}
"""The bytes that occur in UTF-8."""


class GrammarVocabulary:
    """Has the interface that `llguidance.TokenizerWrapper` expects of a tokenizer."""

    def __init__(
        self,
        tokens: list[bytes],
        special: Set[int],
        eos: int,
        tokenizer: Tokenizer,
        *,
        leads_with_space: bool,
    ) -> None:
        """
        Args:
            tokens: [vocab_size]; empty for ids that may never be sampled
            leads_with_space: see `Vocabulary`
        """
        self.tokens = tokens
        self.leads_with_space = leads_with_space
        self.special_token_ids = sorted(special)
        self.eos_token_id = eos
        self.bos_token_id = None
        self._tokenizer = tokenizer
        # T5's, for example, has no token for a brace: it reads one as "unknown".
        single = {
            token[0] for id, token in enumerate(tokens) if len(token) == 1 and id not in special
        }
        self.spells_any_text = single >= _BYTES_OF_TEXT or not _reads_unknowns(tokenizer)

    def __call__(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def load_vocabulary(backend: Tokenizer, vocab_size: int, eos: Set[int]) -> GrammarVocabulary:
    """Raises UnsupportedModel if the tokens' bytes cannot be determined."""
    tokenizer = _continuing(backend)
    spelled = Vocabulary(tokenizer)
    added = tokenizer.get_added_tokens_decoder()
    special = {id for id, token in added.items() if token.special} | eos
    tokens = [
        (tokenizer.id_to_token(id) or "").encode() if id in special else spelled[id]
        for id in range(vocab_size)
    ]
    return GrammarVocabulary(
        tokens,
        {id for id in special if id < vocab_size},
        min(eos),
        tokenizer,
        leads_with_space=spelled.leads_with_space,
    )


def _reads_unknowns(tokenizer: Tokenizer) -> bool:
    """Whether it has a token for characters that it lacks."""
    model = msgspec.json.decode(tokenizer.to_str())["model"]
    return any(model.get(name) is not None for name in ("unk_token", "unk_id"))


def _continuing(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that tokenizes text as the middle of an output: it adds no prefix, does not normalize,
    and treats a special token's spelling as plain text."""
    state = msgspec.json.decode(tokenizer.to_str())
    state["normalizer"] = _only_replacing(state["normalizer"])
    _without_prefix(state["pre_tokenizer"])
    copy = Tokenizer.from_str(msgspec.json.encode(state).decode())
    copy.encode_special_tokens = True
    return copy


def _only_replacing(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Keep only SentencePiece's replacement of spaces; every other normalizer changes the text."""
    if normalizer is None or normalizer["type"] == "Replace":
        return normalizer
    steps = normalizer.get("normalizers", [])
    kept = [kept for step in steps if (kept := _only_replacing(step)) is not None]
    return {"type": "Sequence", "normalizers": kept} if kept else None


def _without_prefix(pre_tokenizer: dict[str, Any] | None) -> None:
    if pre_tokenizer is None:
        return
    match pre_tokenizer["type"]:
        case "Sequence":
            for step in pre_tokenizer["pretokenizers"]:
                _without_prefix(step)
        case "Metaspace":
            pre_tokenizer["prepend_scheme"] = "never"
        case "ByteLevel":
            pre_tokenizer["add_prefix_space"] = False
