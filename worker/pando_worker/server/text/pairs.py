"""Texts, and pairs of them, as text encoders and cross-encoders read them: with the tokens that the
tokenizer puts around them, which truncation keeps.
"""

from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer

from pando_worker.server.text.long_texts import Room, first_text


@dataclass(frozen=True, slots=True)
class TokenPair:
    """
    Attributes:
        second: the first token of the second text, where the model distinguishes both; else 0
    """

    token_ids: list[int]
    second: int = 0


def truncated(tokenizer: Tokenizer, first: str, second: str | None, room: Room) -> TokenPair:
    """One text or two. With `room.keep`, the first tokens of each, as many as fit together: as
    transformers' `longest_first` has it, the longer one gives way until both are equally long."""
    added = tokenizer.num_special_tokens_to_add(second is not None)
    keep = None if room.keep is None else max(min(room.keep, room.tokens + 1) - added, 0)

    def encode(text: str) -> Encoding:
        if keep is not None:
            text = first_text(text, keep, lambda part: plain(part).ids)
        return plain(text)

    def plain(text: str) -> Encoding:
        return tokenizer.encode(text, add_special_tokens=False)

    parts = [encode(first)] if second is None else [encode(first), encode(second)]
    if keep is not None:
        lengths = shares([len(part.ids) for part in parts], keep)
        for part, length in zip(parts, lengths, strict=True):
            part.truncate(length)
    whole = tokenizer.post_process(parts[0], parts[1] if second is not None else None)
    kinds = whole.type_ids
    return TokenPair(list(whole.ids), kinds.index(1) if 1 in kinds else 0)


def shares(lengths: list[int], room: int) -> list[int]:
    """How many tokens of one text, or of two, fit."""
    if len(lengths) == 1 or sum(lengths) <= room:
        return [min(length, room) for length in lengths]
    short = min(lengths)
    short, long = (short, room - short) if 2 * short <= room else (room // 2, room - room // 2)
    return [short, long] if lengths[0] <= lengths[1] else [long, short]
