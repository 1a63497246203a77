"""Migration as the proxy sees it: when a stream may go on, who is asked what, and what is told."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from pando_router.configuration.live import Live
from pando_router.errors import ApiError
from pando_router.http.answer import Answer
from pando_router.http.byte_budget import ByteBudget
from pando_router.migration.errors import MigrationError, RefusedError
from pando_router.migration.plan import Plan
from pando_router.migration.recording import Recording
from pando_router.migration.stream import ASK_TOKENS, NeedsCountError, Stream
from pando_router.telemetry.metrics import Metrics

Post = Callable[[bytes, bytes], Awaitable[Answer]]
"""Sends a body to a path of the replica that is to go on."""

MAX_COUNT_BYTES = 16 << 20  # of the answer that counts tokens: some engines list them, too

logger = logging.getLogger("pando.router")


class _Counted(msgspec.Struct):
    """What the count of a text's tokens answers, of vLLM, SGLang and Pando."""

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

    def asked(self, plan: Plan, headers: list[tuple[bytes, bytes]]) -> None:
        """Has a request's answer tell what a migration needs."""
        if not plan.refusal:
            headers.append(ASK_TOKENS)

    def stream(self, plan: Plan, body: bytes, answer: Answer) -> Stream | None:
        """For an answer that begins; None where it cannot be migrated."""
        if (
            answer.status != 200
            or not answer.is_event_stream
            or answer.header(b"content-length")  # what goes on elsewhere has another length
        ):
            return None
        settings = self._live.settings
        recording = Recording(settings.migrate_stream_bytes, self._memory)
        return Stream.begun(plan, body, answer.count, recording, settings.max_migrations)

    def lost(self, stream: Stream, request_id: str) -> bool:
        """Whether to ask another replica. Raises RefusedError."""
        if stream.lost():
            return True
        self._count("ended")
        logger.info("stream had ended", extra={"request_id": request_id})
        return False

    async def request(self, stream: Stream, post: Post) -> bytes:
        """The request for the rest. Raises RefusedError, and what `post` raises."""
        try:
            return stream.ask()
        except NeedsCountError as needed:
            return stream.ask(await self._tokens(stream, needed.text, post))

    def goes_on(self, stream: Stream, answer: Answer, request_id: str, replica: str) -> None:
        """Another replica answers. Raises RefusedError where that is not what was asked for."""
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
        """Nobody was there to go on."""
        self._count("no_replica")
        extra = {"request_id": request_id, "error": error.message}
        logger.warning("stream not migrated", extra=extra)

    async def _tokens(self, stream: Stream, text: str, post: Post) -> int:
        """How many tokens the text is to the replica that is to go on. Raises RefusedError."""
        asked = msgspec.json.decode(stream.body, type=dict[str, object])
        body = {"model": asked.get("model"), "prompt": text, "add_special_tokens": False}
        answer = await post(self._tokenize, msgspec.json.encode(body))
        counted = await answer.whole(MAX_COUNT_BYTES)
        if answer.status == 200:
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(counted, type=_Counted).count
        raise RefusedError("how many tokens its text is cannot be found out")

    def _count(self, outcome: str) -> None:
        self._metrics.migrations.labels(outcome).inc()
