"""A process for large bodies: answers, errors, its end and its successor."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pando_fleet.http.body_process.process import BodyProcess
from pando_fleet.http.errors import ApiError
from tests.fleet.http import body_process_answers
from tests.waiting import is_running, until, until_async

BODY = bytes(range(256)) * 40_000  # 10 MiB: many times what a socket holds
NEVER_S = 1e6


@contextmanager
def process(idle_s: float = NEVER_S, answer_s: float = 60.0) -> Iterator[BodyProcess]:
    one = BodyProcess(body_process_answers.__name__, idle_s=idle_s, answer_s=answer_s)
    try:
        yield one
    finally:
        pid = one.pid
        one.close()
        if pid is not None:
            until(lambda: not is_running(pid), "the process has ended")


async def test_a_large_body_goes_there_and_another_comes_back() -> None:
    with process() as one:
        assert one.pid is None, "it starts with the first body"
        assert await one.ask("size", BODY) == (len(BODY), b"")
        assert await one.ask("backwards", BODY) == (None, BODY[::-1])
        assert await one.ask("backwards", b"") == (None, b"")
        assert await one.ask("who", b"") == (one.pid, b"")


async def test_questions_at_once_are_answered_one_after_the_other() -> None:
    with process() as one:
        answers = await asyncio.gather(*(one.ask("size", b"x" * n) for n in range(20)))
        assert [size for size, _ in answers] == list(range(20))


async def test_errors_are_raised_with_all_their_fields() -> None:
    with process() as one:
        with pytest.raises(ApiError, match="no") as refused:
            await one.ask("refuse", b"")
        error = refused.value
        assert (error.status, error.kind, error.param, error.code) == (422, "k", "p", "c")
        assert error.headers == {"a": "b"}
        with pytest.raises(ZeroDivisionError, match="by nothing"):
            await one.ask("fail", b"")
        assert await one.ask("size", b"x") == (1, b""), "it goes on"


async def test_a_process_that_ends_fails_its_question_only() -> None:
    with process() as one:
        for question in ("die", "die"):
            with pytest.raises(ApiError) as lost:
                await one.ask(question, BODY)
            assert lost.value.status == 503 and lost.value.headers["retry-after"] == "1"
            assert one.pid is None
        assert await one.ask("size", b"x") == (1, b"")


async def test_a_process_that_ended_while_idle_is_replaced_unnoticed() -> None:
    with process() as one:
        first, _ = await one.ask("who", b"")
        os.kill(first, signal.SIGKILL)
        await until_async(lambda: not is_running(first), "it ended")
        second, _ = await one.ask("who", b"")
        assert second != first


async def test_a_process_that_cannot_be_started_fails_its_question_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with process() as one:
        with monkeypatch.context() as without:
            without.setattr(sys, "executable", "/nowhere/python")
            with pytest.raises(ApiError, match="can be started") as lost:
                await one.ask("size", b"x")
        assert lost.value.status == 503
        assert await one.ask("size", b"x") == (1, b"")


async def test_a_process_that_takes_too_long_is_ended() -> None:
    with process(answer_s=0.2) as one:
        with pytest.raises(ApiError, match="too long"):
            await one.ask("never", b"")
        assert one.pid is None


async def test_an_idle_process_ends_and_the_next_body_starts_another() -> None:
    with process(idle_s=0.05) as one:
        first, _ = await one.ask("who", b"")
        await until_async(lambda: not is_running(first), "it ended")
        second, _ = await one.ask("who", b"")
        assert second != first


async def test_closing_ends_a_process_that_works_and_those_that_wait_get_503() -> None:
    one = BodyProcess(body_process_answers.__name__)
    pid, _ = await one.ask("who", b"")
    asking = [asyncio.create_task(one.ask("never", b"")) for _ in range(3)]
    await asyncio.sleep(0)
    one.close()
    for task in asking:
        with pytest.raises(ApiError) as refused:
            await task
        assert refused.value.status == 503
    with pytest.raises(ApiError, match="shutting down"):
        await one.ask("who", b"")
    await until_async(lambda: not is_running(pid), "it ended")
