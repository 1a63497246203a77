"""Turns one request's output tokens into final text, and into scored tokens if requested.

It works token by token, so the result does not depend on how many arrive at once. Text that may
become a stop string is held back, and so are the scores of its tokens: sent text is never revoked.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from pando_worker.messages import FinishReason, Output, TokenLogprob
from pando_worker.server.text.stop_strings import StopStrings
from pando_worker.tokenizer.detokenizer import Detokenizer, Vocabulary


class Finish(msgspec.Struct, frozen=True):
    reason: FinishReason
    matched: int | str | None = None  # the stop token or stop string


class ScoredToken(msgspec.Struct, frozen=True):
    token_id: int
    score: TokenLogprob
    offset: int  # of its text in the output's text, in characters


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """An output's addition to one choice of an answer."""

    index: int
    text: str  # may be empty, within a character or while a possible stop string is held back
    token_ids: list[int]
    cached_tokens: int
    finish: Finish | None
    # If requested: of all of `token_ids` except resumed ones, and of those whose text is sent now.
    logprobs: list[TokenLogprob]
    scored: list[ScoredToken]
    prompt_logprobs: list[TokenLogprob]  # with the first delta


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    stop: Collection[str] = ()
    stop_token_ids: Collection[int] = ()
    include_stop: bool = False  # keep the stop string or token that ends the text
    special_tokens: Mapping[int, bytes] = field(default_factory=dict)  # those to keep in the text
    unstoppable: int = 0  # tokens at the beginning in which stop strings are ignored
    is_whole: bool = False  # the output is a text of its own, as an encoder-decoder's


class OutputReader:
    def __init__(self, index: int, vocabulary: Vocabulary, options: TextOptions) -> None:
        self._index = index
        self._options = options
        self._detokenizer = Detokenizer(
            vocabulary, options.special_tokens, is_whole=options.is_whole
        )
        self._stops = StopStrings(options.stop, include=options.include_stop)
        self._scores = _HeldScores()
        self._tokens = 0
        self._decoded = 0  # characters from the detokenizer
        self._sent = 0  # characters that are sent

    def read(self, output: Output) -> Delta:
        tokens = output.token_ids
        stopped = self._stop_token(output) is not None
        unscored = _unscored(output)
        text = ""
        for i, token_id in enumerate(tokens):
            if stopped and not self._options.include_stop and i == len(tokens) - 1:
                break
            text += self._push(token_id, output.logprobs[i - unscored] if i >= unscored else None)
            if self._stops.matched is not None:
                return self._delta(output, text, i + 1)
        if output.finish is not None:
            text += self._out(self._stops.push(self._detokenizer.flush()))
            if self._stops.matched is None:
                text += self._out(self._stops.flush())
        return self._delta(output, text, len(tokens))

    def _push(self, token_id: int, score: TokenLogprob | None) -> str:
        start = self._decoded
        text = self._detokenizer.push(token_id)
        self._decoded += len(text)
        if score is not None:
            end = self._decoded + self._detokenizer.within_character
            self._scores.add(ScoredToken(token_id, score, start), end)
        self._tokens += 1
        if self._tokens > self._options.unstoppable:
            text = self._stops.push(text)
        return self._out(text)

    def _out(self, text: str) -> str:
        self._sent += len(text)
        return text

    def _stop_token(self, output: Output) -> int | None:
        """The stop token that ended the output, whose text is omitted; None if a grammar ended
        it."""
        if output.finish is not FinishReason.STOP:
            return None
        last = output.token_ids[-1]
        return last if last in self._options.stop_token_ids else None

    def _delta(self, output: Output, text: str, count: int) -> Delta:
        finish = None
        if self._stops.matched is not None:
            finish = Finish(FinishReason.STOP, self._stops.matched)
            scored = self._scores.cut(self._sent)
        elif output.finish is not None:
            finish = Finish(output.finish, self._stop_token(output))
            scored = self._scores.rest()
        else:
            scored = self._scores.take(self._sent)
        return Delta(
            index=self._index,
            text=text,
            token_ids=output.token_ids[:count],
            cached_tokens=output.cached_tokens,
            finish=finish,
            logprobs=output.logprobs[: max(0, count - _unscored(output))],
            scored=scored,
            prompt_logprobs=output.prompt_logprobs,
        )


def _unscored(output: Output) -> int:
    """The number of first tokens without a log-probability: the resumed ones, or all."""
    return len(output.token_ids) - len(output.logprobs)


class _HeldScores:
    """Scored tokens in order, until their text is sent. A token's text ends at `end`; a token that
    ends within a character counts up to that character's end."""

    def __init__(self) -> None:
        self._held: list[tuple[ScoredToken, int]] = []

    def add(self, token: ScoredToken, end: int) -> None:
        self._held.append((token, end))

    def take(self, sent: int) -> list[ScoredToken]:
        """Those whose text is sent, up to `sent` characters. A token without text waits for the
        next character, since a stop string may still begin at its place."""
        count = 0
        while count < len(self._held) and self._held[count][1] <= sent:
            if self._held[count][0].offset == sent:
                break
            count += 1
        return self._release(count)

    def cut(self, length: int) -> list[ScoredToken]:
        """Those with text in an output that ends at `length`; the others are dropped."""
        taken = self._release(len(self._held))
        return [token for token in taken if token.offset < length]

    def rest(self) -> list[ScoredToken]:
        return self._release(len(self._held))

    def _release(self, count: int) -> list[ScoredToken]:
        taken, self._held = self._held[:count], self._held[count:]
        return [token for token, _ in taken]
