"""Builds a request's grammar off the event loop, since a hostile one takes long to check."""

import asyncio
from functools import partial

from pando_worker.parsers.reasoning import ReasoningFormat, Start
from pando_worker.parsers.tools import ToolUse
from pando_worker.server.jobs.constraints import grammar_of
from pando_worker.server.protocol.sampling import SamplingFields
from pando_worker.server.service import Service


async def grammar_for(
    service: Service,
    fields: SamplingFields,
    *,
    tool_use: ToolUse | None = None,
    reasoning: tuple[ReasoningFormat, Start] | None = None,
) -> str | None:
    """The output's grammar, if it is constrained. Raises ApiError 400 for invalid constraints."""
    constraints = fields.constraints()
    if not constraints and tool_use is None:
        return None
    special = service.model.tokenizer.vocabulary.special
    make = partial(
        grammar_of,
        **constraints,
        tool_use=tool_use,
        tool_format=service.model.tool_format,
        reasoning=reasoning,
        special_tokens={name.decode(): token_id for token_id, name in special.items()},
    )
    return await asyncio.to_thread(make)
