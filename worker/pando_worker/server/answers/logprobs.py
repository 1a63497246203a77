"""Log-probabilities in OpenAI's two forms, the one of chats and the one of completions.

Tokens are shown as OpenAI shows them: by their text, or with `\\xf0`-like escapes where they are
part of a character. A special token has its name, but no bytes, since the text leaves it out; so
the bytes of all tokens, joined, are the text's.
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
"""JSON has no infinity; OpenAI's word for a token that is out of the question."""


def chat_logprobs(vocabulary: Vocabulary, tokens: Iterable[ScoredToken], top: int) -> ChatLogprobs:
    return ChatLogprobs([_chat_token(vocabulary, token, top) for token in tokens])


def completion_logprobs(
    vocabulary: Vocabulary, tokens: Iterable[ScoredToken], top: int, shift: int = 0
) -> CompletionLogprobs:
    """`shift` is the length of the text before the one that the tokens' offsets count in."""
    found = CompletionLogprobs([], [], [], [])
    for token in tokens:
        name = _completion_name(vocabulary, token.token_id)
        logprob = finite(token.score.logprob)
        likely = dict(_pairs(token.score, top))
        named: dict[str, float] = {}
        for token_id, value in likely.items():  # tokens of the same name: the likeliest
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
    """A prompt's tokens with their places in its text; `scores` are those from the second on."""
    detokenizer = Detokenizer(vocabulary)
    offsets, length = [], 0
    for token_id in token_ids:
        offsets.append(length)
        length += len(detokenizer.push(token_id))
    # A SentencePiece prompt begins with a space that its text does not have.
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
    """Of an echoed prompt, whose first token, having nothing before it, has none."""
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
    """What the token alone decodes to; a special token's name."""
    special = vocabulary.special.get(token_id)
    return (special or vocabulary[token_id]).decode(errors="replace")


def _chat_token(vocabulary: Vocabulary, token: ScoredToken, top: int) -> ChatTokenLogprob:
    name, data = _chat_name(vocabulary, token.token_id)
    likely = [
        TopLogprob(name, value, data)
        for token_id, value in _pairs(token.score, top)
        for name, data in [_chat_name(vocabulary, token_id)]
    ]
    return ChatTokenLogprob(name, finite(token.score.logprob), data, likely)


def _pairs(score: TokenLogprob, top: int) -> list[tuple[int, float]]:
    ids, values = score.top_ids[:top], score.top_logprobs[:top]
    return [(token_id, finite(value)) for token_id, value in zip(ids, values, strict=True)]


def _chat_name(vocabulary: Vocabulary, token_id: int) -> tuple[str, list[int] | None]:
    if special := vocabulary.special.get(token_id):
        return special.decode(), None
    data = vocabulary[token_id]
    return data.decode(errors="backslashreplace"), list(data)


def _completion_name(vocabulary: Vocabulary, token_id: int) -> str:
    """As chats have it, marked where it is no text of its own."""
    if special := vocabulary.special.get(token_id):
        return special.decode()
    try:
        return vocabulary[token_id].decode()
    except UnicodeDecodeError:
        return "bytes:" + vocabulary[token_id].decode(errors="backslashreplace")
