"""A chat's answer in OpenAI's form, whole or as chunks of a stream."""

from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from pando_worker.messages import FinishReason
from pando_worker.server.answer import Result
from pando_worker.server.detokenizer import Vocabulary
from pando_worker.server.logprobs import chat_logprobs
from pando_worker.server.openai_objects import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    Message,
    MessageDelta,
    Usage,
    usage_of,
)
from pando_worker.server.reader import Delta, ScoredToken


@dataclass(slots=True, kw_only=True)
class ChatForm:
    id: str
    model: str
    created: int
    include_usage: bool
    vocabulary: Vocabulary
    logprobs: int | None  # most likely tokens beside each; None: no log-probabilities at all
    begun: set[int] = field(default_factory=set)  # choices whose stream has begun

    def whole(self, results: list[Result]) -> ChatCompletion:
        choices = []
        for index, result in enumerate(results):
            assert result.finish is not None
            scores = self._scores(result.scored)
            choices.append(ChatChoice(index, Message(result.text), result.finish.reason, scores))
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=usage_of(results),
        )

    def events(self, delta: Delta, results: list[Result]) -> list[object]:
        index = delta.index
        events: list[object] = []
        if index not in self.begun:
            self.begun.add(index)
            events.append(self._chunk(index, MessageDelta(role="assistant", content="")))
        if delta.text or delta.scored:
            scores = self._scores(delta.scored)
            events.append(self._chunk(index, MessageDelta(content=delta.text), scores=scores))
        if delta.finish:
            events.append(self._chunk(index, MessageDelta(), delta.finish.reason))
        if self.include_usage and all(result.finish for result in results):
            events.append(self._of([], usage_of(results)))
        return events

    def _scores(self, tokens: list[ScoredToken]) -> ChatLogprobs | None:
        if self.logprobs is None:
            return None
        return chat_logprobs(self.vocabulary, tokens, self.logprobs)

    def _chunk(
        self,
        index: int,
        delta: MessageDelta,
        finish: FinishReason | None = None,
        scores: ChatLogprobs | None = None,
    ) -> ChatChunk:
        no_usage = None if self.include_usage else UNSET
        return self._of([ChatChunkChoice(index, delta, finish, scores)], no_usage)

    def _of(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> ChatChunk:
        return ChatChunk(
            id=self.id, created=self.created, model=self.model, choices=choices, usage=usage
        )
