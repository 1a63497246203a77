"""Makes the job of a conversation, and of every API that is one: chats, messages, responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request

from pando_worker.messages import LogprobsWanted
from pando_worker.parsers.formats import ToolFormat
from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.reasoning import TAIL_TOKENS, ReasoningFormat, Start
from pando_worker.parsers.tools import Choice, ToolUse, read_tool_use
from pando_worker.server.errors import bad_request
from pando_worker.server.generation import Job
from pando_worker.server.images import ChatPrompt
from pando_worker.server.jobs.constraints import shapes_answers
from pando_worker.server.jobs.grammars import grammar_for
from pando_worker.server.jobs.jobs import JobSpec, make_job
from pando_worker.server.jobs.prompts import room_for
from pando_worker.server.protocol.chats.chat import ChatRequest
from pando_worker.server.service import AskedModel, Service


@dataclass(frozen=True, slots=True)
class ChatJob:
    """A conversation's job, and how its output is read."""

    model: AskedModel
    prompt: ChatPrompt
    reading: "OutputReading"
    job: Job
    call_ids: list[str]  # of a resumed answer's first calls

    @property
    def parsers(self) -> list[OutputParser]:
        """New ones, one for each choice."""
        return [self.reading.parser(self.call_ids) for _ in self.job.orders]


@dataclass(frozen=True, slots=True)
class OutputReading:
    """How an output is parsed."""

    tool_use: ToolUse | None
    tool_format: ToolFormat | None
    reasoning: tuple[ReasoningFormat, Start] | None
    is_shaped: bool  # whether an answer without calls has a grammar of its own

    @property
    def markers(self) -> frozenset[str]:
        """Special tokens that the parsers must see."""
        calls = self.tool_format.markers if self.tool_format else ()
        reasoning = self.reasoning[0].markers if self.reasoning else ()
        return frozenset([*calls, *reasoning])

    def parser(self, call_ids: Sequence[str]) -> OutputParser:
        """A new parser for one choice, whose first calls have these ids."""
        return OutputParser(
            reasoning=self.reasoning[0].parser(self.reasoning[1]) if self.reasoning else None,
            calls=self.tool_format.parser(self.tool_use.tools, is_shaped=self.is_shaped)
            if self.tool_format and self.tool_use
            else None,
            call_ids=call_ids,
        )


async def make_chat_job(service: Service, request: Request, body: ChatRequest) -> ChatJob:
    """Raises ApiError 400 for a conversation that the model or this worker can never run, and
    others as `make_job`."""
    model = service.use_model(request, body.model)
    tool_use = read_tool_use(body.tools, body.tool_choice, body.parallel_tool_calls)
    max_tokens = body.max_completion_tokens or body.max_tokens
    keep_last = body.truncate_prompt_tokens
    room = room_for(service, "messages", keep_last=keep_last, output=max_tokens or 1)
    prompt = await service.encode_chat(body, room)
    reading = _reading(service, body, tool_use, prompt.token_ids)
    spec = JobSpec(
        prompts=[prompt.token_ids],
        images=prompt.images,
        prompt_param="messages",
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        samples=body.n or 1,
        keep_last=keep_last,
        seed=body.seed,
        priority=body.priority or 0,
        resumed=body.resume_token_ids,
        cache_salt=body.cache_salt,
        adapter=model.identity,
        logprobs=LogprobsWanted(top=body.top_logprobs or 0) if body.logprobs else None,
        grammar=await grammar_for(
            service, body, tool_use=reading.tool_use, reasoning=reading.reasoning
        ),
        visible_tokens=reading.markers,
    )
    job = await make_job(service, request, body, spec)
    return ChatJob(model, prompt, reading, job, body.resume_call_ids)


def _reading(
    service: Service, body: ChatRequest, tool_use: ToolUse | None, prompt: list[int]
) -> OutputReading:
    """Raises ApiError 400 if an answer is continued although the prompt opens the reasoning
    before it."""
    model, continued = service.model, body.continued_text
    reasoning = None
    if model.reasoning_format is not None:
        tail = TAIL_TOKENS + len(continued.encode(errors="replace"))
        end = model.tokenizer.decode(prompt[-tail:]).removesuffix(continued)
        start = model.reasoning_format.start(end)
        if continued and start is Start.INSIDE:
            raise bad_request(
                "this model's answers begin with reasoning, so the text of one cannot be continued",
                "continue_final_message",
                "unsupported_parameter",
            )
        reasoning = model.reasoning_format, Start.ANSWER if continued else start
    return OutputReading(
        tool_use,
        model.tool_format if tool_use else None,
        reasoning,
        is_shaped=tool_use is not None
        and tool_use.choice is Choice.AUTO
        and shapes_answers(body.constraints()),
    )
