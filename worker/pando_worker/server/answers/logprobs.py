"""Log-probabilities in OpenAI's two forms, for chats and for completions.

Tokens are shown as OpenAI shows them: as text, or as escapes like `\\xf0` if they hold part of a
character. A special token has a name but no bytes, because the text omits it; so the bytes of all
tokens, joined, are the bytes of the text.
"""

from collections.abc import Iterable, Sequence

from pando_worker.messages import TokenLogprob
from pando_worker.server.answers.openai_objects import (
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    TopLogprob,
)
from pando_worker.server.text.reader import ScoredToken
from pando_worker.tokenizer.detokenizer import Detokenizer, Vocabulary

LEAST_LOGPROB = -9999.0
"""OpenAI's value for an impossible token; JSON has no infinity."""


def chat_logprobs(vocabulary: Vocabulary, tokens: Iterable[ScoredToken], top: int) -> ChatLogprobs:
    return ChatLogprobs([_chat_token(vocabulary, token, top) for token in tokens])


def text_logprobs(
    vocabulary: Vocabulary, tokens: Iterable[ScoredToken], top: int
) -> list[ChatTokenLogprob]:
    """Those of a response's text: as a chat's, but that a special token has an empty list as its
    bytes, since OpenAI's type has no null there."""
    return [_chat_token(vocabulary, token, top, no_bytes=[]) for token in tokens]


def completion_logprobs(
    vocabulary: Vocabulary, tokens: Iterable[ScoredToken], top: int, shift: int = 0
) -> CompletionLogprobs:
    """`shift` is added to the tokens' offsets: the length of the text before theirs."""
    found = CompletionLogprobs([], [], [], [])
    for token in tokens:
        name = _completion_name(vocabulary, token.token_id)
        logprob = finite(token.score.logprob)
        likely = dict(_pairs(token.score, top))
        named: dict[str, float] = {}
        for token_id, value in likely.items():  # of tokens with the same name, keep the likeliest
            named.setdefault(_completion_name(vocabulary, token_id), value)
        named.setdefault(name, logprob)
        found.tokens.append(name)
        found.token_logprobs.append(logprob)
        found.top_logprobs.append(named)
        found.text_offset.append(token.offset + shift)
    return found


def prompt_tokens(
    vocabulary: Vocabulary, text: str, token_ids: Sequence[int], scores: Sequence[TokenLogprob]
) -> list[ScoredToken]:
    """A prompt's tokens with their offsets in its text; `scores` start at the second token."""
    detokenizer = Detokenizer(vocabulary)
    offsets, length = [], 0
    for token_id in token_ids:
        offsets.append(length)
        length += len(detokenizer.push(token_id))
    # SentencePiece adds a space before the prompt that its text does not have.
    surplus = max(0, length - len(text))
    first = TokenLogprob(0.0)
    return [
        ScoredToken(token_id, score, max(0, offset - surplus))
        for token_id, score, offset in zip(token_ids, [first, *scores], offsets, strict=True)
    ]


def echoed_logprobs(
    vocabulary: Vocabulary, text: str, token_ids: Sequence[int], scores: Sequence[TokenLogprob],
    top: int,
) -> CompletionLogprobs:  # fmt: skip
    """Log-probabilities of an echoed prompt. Its first token has none: nothing precedes it."""
    tokens = prompt_tokens(vocabulary, text, token_ids, scores)
    found = completion_logprobs(vocabulary, tokens, top)
    found.token_logprobs[0] = None
    found.top_logprobs[0] = None
    return found


def joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        first.tokens + second.tokens,
        first.token_logprobs + second.token_logprobs,
        first.top_logprobs + second.top_logprobs,
        first.text_offset + second.text_offset,
    )


def finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)


def token_text(vocabulary: Vocabulary, token_id: int) -> str:
    """The text that the token alone decodes to, or a special token's name."""
    special = vocabulary.special.get(token_id)
    return (special or vocabulary[token_id]).decode(errors="replace")


def _chat_token(
    vocabulary: Vocabulary, token: ScoredToken, top: int, *, no_bytes: list[int] | None = None
) -> ChatTokenLogprob:
    name, data = _chat_name(vocabulary, token.token_id, no_bytes)
    likely = [
        TopLogprob(name, value, data)
        for token_id, value in _pairs(token.score, top)
        for name, data in [_chat_name(vocabulary, token_id, no_bytes)]
    ]
    return ChatTokenLogprob(name, finite(token.score.logprob), data, likely)


def _pairs(score: TokenLogprob, top: int) -> list[tuple[int, float]]:
    ids, values = score.top_ids[:top], score.top_logprobs[:top]
    return [(token_id, finite(value)) for token_id, value in zip(ids, values, strict=True)]


def _chat_name(
    vocabulary: Vocabulary, token_id: int, no_bytes: list[int] | None
) -> tuple[str, list[int] | None]:
    if special := vocabulary.special.get(token_id):
        return special.decode(), no_bytes
    data = vocabulary[token_id]
    return data.decode(errors="backslashreplace"), list(data)


def _completion_name(vocabulary: Vocabulary, token_id: int) -> str:
    """The chat form's name, marked if the token alone is not valid text."""
    if special := vocabulary.special.get(token_id):
        return special.decode()
    try:
        return vocabulary[token_id].decode()
    except UnicodeDecodeError:
        return "bytes:" + vocabulary[token_id].decode(errors="backslashreplace")
