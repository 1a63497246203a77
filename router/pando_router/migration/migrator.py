"""Migration for the data path: makes the requests, and logs and counts the outcomes."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from pando_fleet.http.server.byte_budget import ByteBudget
from pando_router.configuration.live import Live
from pando_router.errors import ApiError
from pando_router.http.answer import Answer
from pando_router.migration.errors import MigrationError, RefusedError
from pando_router.migration.plan import Plan
from pando_router.migration.recording import Recording
from pando_router.migration.stream import ASK_TOKENS, NeedsCountError, Stream
from pando_router.telemetry.metrics import Metrics

Post = Callable[[bytes, bytes], Awaitable[Answer]]
"""Sends a body to a path of the replica that continues the stream."""

MAX_COUNT_BYTES = 16 << 20  # of a tokenization answer; some engines list the tokens, too

logger = logging.getLogger("pando.router")


class _Counted(msgspec.Struct):
    """The tokenization answer of vLLM, SGLang and Pando."""

    count: int


class Migrator:
    def __init__(self, live: Live, metrics: Metrics, tokenize: str) -> None:
        """`tokenize` is the path at which replicas count a text's tokens."""
        self._live = live
        self._tokenize = tokenize.encode()
        self._memory = ByteBudget(
            live.derived(lambda now: now.migrate_memory_bytes)
        )  # of all streams
        self._metrics = metrics

    def request_token_ids(self, plan: Plan, headers: list[tuple[bytes, bytes]]) -> None:
        """Adds the header that has the answer report token ids, if the stream may migrate."""
        if not plan.refusal:
            headers.append(ASK_TOKENS)

    def stream(self, plan: Plan, body: bytes, answer: Answer) -> Stream | None:
        """The stream of an answer that begins; None if it cannot be migrated."""
        if (
            answer.status != 200
            or not answer.is_event_stream
            or answer.header(b"content-length")  # a continuation would have another length
        ):
            return None
        settings = self._live.settings
        recording = Recording(settings.migrate_stream_bytes, self._memory)
        return Stream.begun(plan, body, answer.count, recording, settings.max_migrations)

    def lost(self, stream: Stream, request_id: str) -> bool:
        """Whether another replica must continue the stream. Raises RefusedError."""
        if stream.lost():
            return True
        self._count("ended")
        logger.info("stream had ended", extra={"request_id": request_id})
        return False

    async def request(self, stream: Stream, post: Post) -> bytes:
        """The body of the request for the rest. Raises RefusedError, and what `post` raises."""
        try:
            return stream.ask()
        except NeedsCountError as needed:
            return stream.ask(await self._tokens(stream, needed.text, post))

    def goes_on(self, stream: Stream, answer: Answer, request_id: str, replica: str) -> None:
        """Another replica answered. Raises RefusedError if the answer is no continuation."""
        if answer.status != 200 or not answer.is_event_stream:
            raise RefusedError(f"the new replica answered {answer.status}, not with a stream")
        stream.goes_on(answer.count)
        self._count("migrated")
        logger.info(
            "stream migrated",
            extra={
                "request_id": request_id,
                "replica": replica,
                "migrations": stream.migrations,
            },
        )

    def failed(self, error: MigrationError, request_id: str) -> None:
        self._count(error.outcome)
        extra = {"request_id": request_id, "error": str(error)}
        logger.warning("stream not migrated", extra=extra)

    def no_replica(self, error: ApiError, request_id: str) -> None:
        """No replica was found to continue the stream."""
        self._count("no_replica")
        extra = {"request_id": request_id, "error": error.message}
        logger.warning("stream not migrated", extra=extra)

    async def _tokens(self, stream: Stream, text: str, post: Post) -> int:
        """Counts the text's tokens at the replica that continues. Raises RefusedError."""
        asked = msgspec.json.decode(stream.body, type=dict[str, object])
        body = {"model": asked.get("model"), "prompt": text, "add_special_tokens": False}
        answer = await post(self._tokenize, msgspec.json.encode(body))
        counted = await answer.whole(MAX_COUNT_BYTES)
        if answer.status == 200:
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(counted, type=_Counted).count
        raise RefusedError("the tokens of its text cannot be counted")

    def _count(self, outcome: str) -> None:
        self._metrics.migrations.labels(outcome).inc()
