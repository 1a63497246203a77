"""How a stream ends whose generation fails after its first token, in each API with named events."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest

from pando_worker.messages import FinishReason, Generate, SamplingParams
from pando_worker.parsers.output import OutputParser
from pando_worker.server.answers.answer import Answer, Form
from pando_worker.server.answers.message_form import MessageForm
from pando_worker.server.answers.response_form import ResponseForm
from pando_worker.server.endpoints.responses import begun_response
from pando_worker.server.errors import unavailable
from pando_worker.server.generation import Job
from pando_worker.server.protocol.chats.responses import ResponsesRequest
from pando_worker.server.text.reader import Delta, Finish, TextOptions
from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import MODEL

ORDER = Generate(rid="r", input_ids=[1, 2], sampling=SamplingParams(max_new_tokens=9))
PARSER = OutputParser(reasoning=None, calls=None)


def messages() -> Form:
    return MessageForm(request_id="r", model="m", parser=PARSER)


def responses() -> Form:
    body = ResponsesRequest(model="m", input="Hello")
    kept: list[object] = []
    return ResponseForm(begun_response(body, "m"), PARSER, Tokenizer(MODEL).vocabulary, kept.append)


def said(text: str, finish: Finish | None = None) -> Delta:
    return Delta(
        index=0,
        text=text,
        token_ids=[5],
        cached_tokens=0,
        finish=finish,
        logprobs=[],
        scored=[],
        prompt_logprobs=[],
    )


async def broken() -> AsyncGenerator[Delta, None]:
    yield said("Hel")
    raise unavailable("the engine has ended", "engine_gone")


async def stopped_by_another() -> AsyncGenerator[Delta, None]:
    yield said("Hel")
    yield said("", Finish(FinishReason.ABORT))


@pytest.mark.parametrize(
    ("form", "deltas", "name", "why"),
    [
        (messages, broken, "error", "the engine has ended"),
        (messages, stopped_by_another, "error", "the request was aborted"),
        (responses, broken, "response.failed", "the engine has ended"),
        (responses, stopped_by_another, "response.failed", "the request was aborted"),
    ],
)
async def test_the_last_event_says_why(
    form: Callable[[], Form],
    deltas: Callable[[], AsyncGenerator[Delta, None]],
    name: str,
    why: str,
) -> None:
    job = Job(prompts=[[1, 2]], samples=1, orders=[ORDER], text=TextOptions(), received=0.0)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await Answer(deltas(), form(), job, stream=True)({}, None, send)  # type: ignore[arg-type]
    body = b"".join(message.get("body", b"") for message in sent).decode()
    *_, last = body.strip().split("\n\n")
    event, data = last.split("\n")
    assert event == f"event: {name}"
    fields = msgspec.json.decode(data.removeprefix("data: "))
    assert fields["type"] == name
    assert fields.get("response", fields)["error"]["message"] == why
    assert not sent[-1].get("more_body")
