"""One client's stream, relayed from one replica or from several in turn.

stream = Stream.begun(plan, body, answer.count, …)         at the first replica's head
to_client = stream.pass_on(chunk)                          for each chunk; then stream.end()
request = stream.lost()                                    a replica is lost: ask another
stream.goes_on(answer.count)                               it answers: pass_on its chunks
stream.close()                                             in any case, at the end
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from pando_router.migration import bodies
from pando_router.migration.errors import RefusedError
from pando_router.migration.events import DONE_EVENT, Event, encoded, events_of
from pando_router.migration.form import Body, Fit, Form
from pando_router.migration.plan import Plan
from pando_router.migration.recording import Recording, end_of_events
from pando_router.migration.sent import Owed, Sent

Count = Callable[[bytes], int | None]
"""Reads a number from an answer's header."""

ASK_TOKENS = (b"x-pando-token-ids", b"1")
"""The header by which Pando's workers report token ids in their streams."""

_RESUME = "resume_token_ids"
_RESUMED = b"x-pando-resumed-tokens"
_PROMPT_TOKENS = b"x-pando-prompt-tokens"  # sent by Pando's workers only
_CACHED_TOKENS = b"x-pando-cached-tokens"


@dataclass(slots=True)
class _Continuation:
    """The phase after the first loss, in which every event is parsed and fitted."""

    fit: Fit
    expected: int  # tokens that the new replica must confirm it resumes
    token_ids: list[int] | None = None  # reported by it, from the answer's beginning
    rest: bytes = b""


@dataclass(slots=True)
class Stream:
    form: Form
    body: bytes
    recording: Recording
    refusal: str  # why it cannot continue once text was sent; empty if it can
    max_migrations: int
    scored: bool  # the request asks for log-probabilities
    prompt_tokens: int | None  # as the first replica reported; None for other engines
    cached_tokens: int | None  # likewise
    migrations: int = 0
    failed: bool = False  # the replica reported that it can no longer serve
    sent: Sent = field(default_factory=Sent)
    _continuation: _Continuation | None = None

    @classmethod
    def begun(
        cls, plan: Plan, body: bytes, count: Count, recording: Recording, max_migrations: int
    ) -> "Stream":
        """For an event stream that begins with status 200."""
        prompt, cached = count(_PROMPT_TOKENS), count(_CACHED_TOKENS)
        refusal = plan.refusal
        if plan.scored and prompt is None:
            refusal = refusal or "text cannot continue a request with log-probabilities"
        return cls(plan.form, body, recording, refusal, max_migrations, plan.scored, prompt, cached)

    def pass_on(self, chunk: bytes) -> bytes:
        """The bytes to send now. Raises DivergedError or RefusedError in a continuation."""
        if self._continuation is not None:
            return self._fitted(self._continuation, chunk)
        if self.recording.forgotten:
            return chunk
        held = self.recording.held_back
        if (found := self.form.gone_at(held + chunk)) >= 0:
            self.failed = True
            chunk = chunk[: max(0, found - len(held))]
        events = self.recording.whole_events(chunk)
        return events + self._forget_with_text(events) if self.refusal else events

    def end(self) -> bytes:
        """The remaining bytes of a stream that ended well."""
        return b"" if self._continuation else self.recording.rest()

    def close(self) -> None:
        self.recording.close()

    def lost(self) -> bool:
        """Whether another replica must continue; otherwise only `ending` is missing.

        Raises RefusedError if the stream cannot continue.
        """
        self.failed = False
        if self._continuation is None:
            if self.recording.forgotten:
                raise RefusedError(self.recording.forgotten)
            if not self.refusal:  # else it was parsed while it was relayed
                self._read(self.recording.events())
            self.recording.close()
        else:
            self._take_ids(self._continuation)
        if self.sent.finished or self.sent.done:
            return False
        if self.migrations >= self.max_migrations:
            raise RefusedError(f"it has been migrated {self.migrations} times")
        return True

    def ask(self, count_tokens: int | None = None) -> bytes:
        """The body of the request for the rest; may be called again for another replica.

        Raises RefusedError, and NeedsCountError: call again with the token count of its text.
        """
        return msgspec.json.encode(self._ask(bodies.decode(self.body), count_tokens))

    @property
    def ending(self) -> bytes:
        """The closing events of a stream whose answer is complete.

        Omits the usage if it is unknown, as OpenAI's API does for streams that break.
        """
        if self.sent.done:
            return b""
        options = bodies.decode(self.body).get("stream_options") or {}
        ids, prompt = self.sent.token_ids, self.prompt_tokens
        if self.sent.has_usage or not options.get("include_usage") or ids is None or prompt is None:
            return self.form.last_event
        usage: Event = {
            "prompt_tokens": prompt,
            "completion_tokens": len(ids),
            "total_tokens": prompt + len(ids),
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens or 0},
        }
        return encoded({**self.sent.identity, "choices": [], "usage": usage}) + self.form.last_event

    def goes_on(self, count: Count) -> None:
        """Another replica answered. Raises RefusedError if it cannot resume answers."""
        assert self._continuation is not None
        expected = self._continuation.expected
        if expected and count(_RESUMED) != expected:
            raise RefusedError("the new replica cannot resume answers")
        self.migrations += 1

    def _ask(self, body: Body, count_tokens: int | None) -> Body:
        sent, ids = self.sent, self.sent.token_ids
        only_pando = self.form.with_text is None
        cached = sent.cached_tokens if self.cached_tokens is None else self.cached_tokens
        if sent.identity and not bodies.has_one_choice(self.form, body):
            raise RefusedError("it has several choices")
        if self.prompt_tokens is None and (sent.resumed or (not sent.is_empty and only_pando)):
            raise RefusedError("only Pando's workers can continue it")
        if sent.is_empty:
            fit = Fit(cached_tokens=cached, scores_owed=sent.scored, marks_owed=[*sent.marks])
            self._continuation = _Continuation(fit, 0)
            return body | sent.resumed
        if self.refusal:
            raise RefusedError(self.refusal)
        if self.prompt_tokens is not None:
            # All sent text is repeated, whether or not the ids cover it.
            fit = Fit(Owed(dict(sent.texts)), cached_tokens=cached, marks_owed=[*sent.marks])
            ids = self._resumable(body, ids or [], self.prompt_tokens, fit)
            self._continuation = _Continuation(fit, len(ids))
            return body | sent.resumed | ({_RESUME: ids} if ids else {})
        tokens = sent.text_tokens if count_tokens is None else count_tokens
        if tokens is None and bodies.wants_count(self.form, body):
            raise NeedsCountError(sent.text("content", "text"))
        request = bodies.continued(self.form, body, sent, tokens or 0)
        before = sent.text("text") if self.form.whole_text else ""
        fit = Fit(
            before=before,
            ids_before=sent.text_ids,
            tokens_before=tokens or 0,
            cached_tokens=cached,
        )
        self._continuation = _Continuation(fit, 0)
        return request

    def _resumable(self, body: Body, ids: list[int], prompt_tokens: int, fit: Fit) -> list[int]:
        """The ids to resume from. If the request asks for log-probabilities, only tokens whose own
        were sent; the continuation generates the others again, with theirs."""
        if not self.scored:
            return ids
        sent = self.sent
        scored = sent.scored - (prompt_tokens if body.get("echo") else 0)  # of the output
        ids = ids[: max(0, scored)]
        if ids:
            fit.scores_owed, fit.scores_before = scored - len(ids), sent.scores
        else:
            fit.scores_owed = sent.scored
        return ids

    def _forget_with_text(self, events: bytes) -> bytes:
        """Stops keeping a stream that cannot continue, once text of it was sent.

        Returns the held-back start of an event.
        """
        if self.recording.forgotten:
            return b""
        try:
            self._read(events)
        except RefusedError as error:
            return self.recording.forget(str(error))
        return b"" if self.sent.is_empty else self.recording.forget(self.refusal)

    def _read(self, data: bytes) -> None:
        for event in events_of(data):
            if isinstance(event, str):
                self.sent.done = True
            else:
                self.form.events.read(event, self.sent)
                self.sent.token_ids = self.form.events.token_ids(event, self.sent.token_ids)

    def _take_ids(self, continuation: _Continuation) -> None:
        """Takes the continuation's ids, which start at the beginning, if it got further."""
        ids = continuation.token_ids
        if ids is not None and len(ids) > len(self.sent.token_ids or ()):
            self.sent.token_ids = ids

    def _fitted(self, continuation: _Continuation, chunk: bytes) -> bytes:
        data = continuation.rest + chunk
        if (found := self.form.gone_at(data)) >= 0:
            self.failed = True
            data = data[:found]
        end = end_of_events(data)
        continuation.rest = data[end:]
        out = []
        for event in events_of(data[:end]):
            if isinstance(event, str):
                self.sent.done = True
                out.append(DONE_EVENT)
            else:
                events = self.form.events
                continuation.token_ids = events.token_ids(event, continuation.token_ids)
                if events.fit(event, self.sent, continuation.fit):
                    events.read(event, self.sent)
                    out.append(encoded(event, named=self.form.named))
        return b"".join(out)


class NeedsCountError(Exception):
    """The tokens of `text` must be counted first."""

    def __init__(self, text: str) -> None:
        super().__init__("the tokens of the text so far must be counted")
        self.text = text
