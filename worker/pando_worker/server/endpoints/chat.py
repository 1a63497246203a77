"""POST /v1/chat/completions."""

import time
from dataclasses import dataclass

from fastapi import APIRouter, Request

from pando_worker.messages import LogprobsWanted
from pando_worker.parsers.formats import ToolFormat
from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.reasoning import TAIL_TOKENS, ReasoningFormat, Start
from pando_worker.parsers.registry import TOOL_FORMATS, shows_tools
from pando_worker.parsers.tools import ToolUse, read_tool_use
from pando_worker.server.answers.answer import Answer
from pando_worker.server.answers.chat_form import ChatForm
from pando_worker.server.errors import bad_request
from pando_worker.server.jobs.grammars import grammar_for
from pando_worker.server.jobs.jobs import JobSpec, make_job
from pando_worker.server.jobs.prompts import room_for
from pando_worker.server.protocol.chat import ChatRequest
from pando_worker.server.protocol.resume import tells_tokens
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Answer:
        model = service.use_model(request, body.model)
        tool_use = read_tool_use(body.tools, body.tool_choice, body.parallel_tool_calls)
        max_tokens = body.max_completion_tokens or body.max_tokens
        keep_last = body.truncate_prompt_tokens
        room = room_for(service, "messages", keep_last=keep_last, output=max_tokens or 1)
        prompt = await service.encode_chat(body, room)
        reading = _reading(service, tool_use, prompt.token_ids, body.continued_text)
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
        form = ChatForm(
            id=f"chatcmpl-{request.state.request_id}",
            model=model.name,
            created=int(time.time()),
            include_usage=body.include_usage,
            vocabulary=service.model.tokenizer.vocabulary,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            parsers=[reading.parser() for _ in job.orders],
            calls_finish=tool_use is None or not tool_use.named,
            tells_tokens=tells_tokens(request),
            image_tokens=prompt.image_tokens,
            video_tokens=prompt.video_tokens,
        )
        return service.answer(job, form, stream=body.stream)

    return router


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a chat's output is parsed."""

    tool_use: ToolUse | None
    tool_format: ToolFormat | None
    reasoning: tuple[ReasoningFormat, Start] | None

    @property
    def markers(self) -> frozenset[str]:
        """Special tokens that the parsers must see."""
        calls = self.tool_format.markers if self.tool_format else ()
        reasoning = self.reasoning[0].markers if self.reasoning else ()
        return frozenset([*calls, *reasoning])

    def parser(self) -> OutputParser:
        """A new parser for one choice."""
        return OutputParser(
            reasoning=self.reasoning[0].parser(self.reasoning[1]) if self.reasoning else None,
            calls=self.tool_format.parser(self.tool_use.tools)
            if self.tool_format and self.tool_use
            else None,
        )


def _reading(
    service: Service, tool_use: ToolUse | None, prompt: list[int], continued: str
) -> _Reading:
    """Raises ApiError 400 if tools may be called but the model's format is unknown, and if an
    answer is `continued` although the prompt opens the reasoning before it."""
    model = service.model
    if tool_use is not None and not shows_tools(model.tokenizer.chat_template):
        raise bad_request(
            f"tools cannot be used with {model.name!r}: its chat template shows none to the model",
            "tools",
            "unsupported_parameter",
        )
    if tool_use is not None and model.tool_format is None:
        raise bad_request(
            f"the tool call format of {model.name!r} is unknown: its chat template shows none of"
            f" the formats {', '.join(TOOL_FORMATS)}, or several. Set the worker's tool_call_parser"
            " to one of them, or tool_choice to 'none' to only show the tools to the model",
            "tools",
            "unsupported_parameter",
        )
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
    return _Reading(tool_use, model.tool_format if tool_use else None, reasoning)
