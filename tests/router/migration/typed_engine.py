"""A Pando worker's streams of messages and responses, made by its own forms from a fixed output
with reasoning, text and two calls; it resumes from any position."""

import json
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from pando_worker.messages import FinishReason
from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.reasoning import Start
from pando_worker.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from pando_worker.parsers.tools import Tool
from pando_worker.server.answers.answer import ChoiceResult, Form
from pando_worker.server.answers.message_form import MessageForm
from pando_worker.server.answers.response_form import ResponseForm
from pando_worker.server.endpoints.responses import begun_response
from pando_worker.server.protocol.chats.responses import ResponsesRequest
from pando_worker.server.text.reader import Delta, Finish
from pando_worker.server.text.tokenizer import Tokenizer
from tests.router.scripted_engine import PROMPT_TOKENS, Event
from tests.worker.server.process.worker_process import MODEL

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PIECES = [
    *("<think>", "Let me", " see", "</think>", "One ", "mom", "", "ent.\n\n"),
    *(
        "<tool_call>",
        '{"name": "wea',
        'ther", "arguments": ',
        '{"city": "Ül',
        'm"}}',
        "</tool_call>",
    ),
    *("\n<tool_call>", '{"name": "time", "arguments"', ': {"city"', ': "Bonn"}}\n</tool_call>'),
]
_TOOLS = tuple(Tool(name, {"type": "object"}, strict=False) for name in ("weather", "time"))
# Its tokens' bytes are not those of PIECES, so the count of reasoning tokens means nothing.
_VOCABULARY = Tokenizer(MODEL).vocabulary


@dataclass(slots=True)
class TypedEngine:
    path: str
    asked: list[Event] = field(default_factory=list)
    gone_after: int | None = None  # the pieces after which it reports that its engine is gone

    def count(self, name: bytes) -> int | None:
        return {
            b"x-pando-prompt-tokens": PROMPT_TOKENS,
            b"x-pando-cached-tokens": 10 - len(self.asked),
            b"x-pando-resumed-tokens": len(self.asked[-1].get("resume_token_ids", ())) or None,
        }[name]

    def answer(self, body: Event) -> bytes:
        self.asked.append(body)
        form = self._form(body)
        resumed = len(body.get("resume_token_ids", ()))
        assert list(range(resumed)) == body.get("resume_token_ids", [])
        result = ChoiceResult(0, [0] * PROMPT_TOKENS)
        cuts = [[*range(resumed + 1)], *([token] for token in range(resumed + 1, len(PIECES)))]
        out = b""
        for tokens in cuts:
            is_last = tokens[-1] == len(PIECES) - 1
            delta = Delta(
                index=0,
                text="".join(PIECES[token] for token in tokens),
                token_ids=tokens,
                cached_tokens=10 - len(self.asked),
                finish=Finish(FinishReason.STOP) if is_last else None,
                logprobs=[],
                scored=[],
                prompt_logprobs=[],
            )
            result.add(delta)
            out += b"".join(map(_encoded, form.events(delta, [result])))
        return out

    def _form(self, body: Event) -> Form:
        ids = (f"call_{len(self.asked)}_{number}" for number in range(9))
        parser = OutputParser(
            REASONING_FORMATS["qwen3"].parser(Start.MAY_OPEN),
            TOOL_FORMATS["hermes"].new_parser(_TOOLS, lambda: next(ids)),
            body.get("resume_call_ids", ()),
        )
        if self.path == MESSAGES:
            return MessageForm(request_id="r", model="m", parser=parser, tells_tokens=True)
        named = {"resume_response_id": f"resp_{len(self.asked)}"} | body
        begun = begun_response(ResponsesRequest.model_validate(named), "m")
        begun = structs.replace(begun, created_at=1000 + len(self.asked))
        return ResponseForm(begun, parser, _VOCABULARY, lambda response: None, tells_tokens=True)


def _encoded(event: object) -> bytes:
    data = msgspec.json.encode(event)
    name: str = json.loads(data)["type"]
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
