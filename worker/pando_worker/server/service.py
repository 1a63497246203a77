"""The state that all endpoints share: the served model and the parts of the process."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from pando_fleet.traces import Tracing
from pando_worker.messages import Pooling, Ready
from pando_worker.models.generation_config import GenerationConfig
from pando_worker.parsers.formats import ToolFormat
from pando_worker.parsers.reasoning import ReasoningFormat
from pando_worker.server.adapters import NamedAdapter, NamedAdapters
from pando_worker.server.answers.answer import Answer, Form
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import ApiError, bad_request, unavailable
from pando_worker.server.front.gate import Gate
from pando_worker.server.generation import Job, generate
from pando_worker.server.images import ChatPrompt, Sight, refuse_images
from pando_worker.server.metrics import Metrics
from pando_worker.server.pooling import NoEmbeddings
from pando_worker.server.protocol.chat import ChatMessage, ChatRequest, check_roles, messages_of
from pando_worker.server.text.long_texts import Room
from pando_worker.server.text.prompt_meter import PromptMeter
from pando_worker.server.text.tokenizer import Prompt, Tokenizer
from pando_worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    name: str
    tokenizer: Tokenizer
    generation: GenerationConfig
    vocab_size: int  # rows of the embedding: ids below it may be sent
    hidden_size: int | None = None  # size of an embedding; None if the config lacks it
    has_head: bool = True  # False: it serves embeddings only
    pooling: Pooling | NoEmbeddings = Pooling.LAST
    tool_format: ToolFormat | None = None  # None: unknown
    reasoning_format: ReasoningFormat | None = None  # None: no reasoning, or unknown
    created: int = field(default_factory=lambda: int(time.time()))  # Unix time


@dataclass(frozen=True, slots=True)
class AskedModel:
    """What a request names as its model: the base, or an adapter of it."""

    name: str
    adapter: NamedAdapter | None = None

    @property
    def identity(self) -> bytes:
        """Of the adapter; empty for the base."""
        return self.adapter.identity if self.adapter else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    settings: WorkerSettings
    model: ServedModel
    engine: EngineClient
    gate: Gate
    metrics: Metrics
    prompt_meter: PromptMeter
    adapters: NamedAdapters
    sight: Sight | None = None  # of a model that sees
    tracing: Tracing | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the model can be used, and the image processor of one that sees."""
        sees_yet = self.sight is None or self.sight.reader.place is not None
        return self.engine.ready is not None and sees_yet and not self._lacking_modules

    @property
    def _lacking_modules(self) -> list[str]:
        """Adapters of the settings that are not loaded yet."""
        if self.adapters.are_preloaded:
            return []
        return [name for name, _ in self.settings.lora_paths if self.adapters.get(name) is None]

    def asked_model(self, name: str | None) -> AskedModel:
        """Raises ApiError 404 if there is no such model; null is the base."""
        if name is None or name == self.model.name:
            return AskedModel(self.model.name)
        if adapter := self.adapters.get(name):
            return AskedModel(name, adapter)
        if name in self._lacking_modules:
            raise unavailable(f"adapter {name!r} is still loading", "model_loading")
        there = f" and its adapters {self.adapters.listed()}" if len(self.adapters) else ""
        raise ApiError(
            404,
            f"model {name[:200]!r} does not exist; this worker serves {self.model.name!r}{there}",
            param="model",
            code="model_not_found",
        )

    def use_model(self, request: Request, name: str | None) -> AskedModel:
        """Like `asked_model`; keeps an adapter loaded until the request has ended."""
        asked = self.asked_model(name)
        if asked.adapter:
            request.state.held.enter_context(asked.adapter.use())
            self.metrics.adapters.count(asked.name)
        return asked

    @property
    def ready(self) -> Ready:
        """The engine's sizes. Raises ApiError 503 while the model loads."""
        if self.engine.ready is None:
            raise unavailable("the model is still loading", "model_loading")
        return self.engine.ready

    @property
    def context_length(self) -> int:
        """Tokens that a request may have, prompt and output together."""
        return self.ready.max_request_tokens

    async def encode_all(self, prompts: Sequence[str | list[int]], room: Room) -> list[list[int]]:
        """Token ids of each prompt; some may already be ids."""
        encoded: list[list[int]] = []
        for prompt in prompts:
            if isinstance(prompt, str):
                encoded.append(self._metered(await self.model.tokenizer.encode(prompt, room)))
                await asyncio.sleep(0)  # a text can take 20 ms: let other requests run
            else:
                encoded.append(prompt)
        return encoded

    async def encode_chat(self, body: ChatRequest, room: Room) -> ChatPrompt:
        """A conversation in the model's chat template. If its last message is continued, the prompt
        ends with that message's text."""
        continued = body.continue_final_message
        return await self.encode_messages(
            body.messages[:-1] if continued else body.messages,
            room,
            tools=body.tools,
            # A continued message follows the generation prompt, like any answer.
            add_generation_prompt=continued or body.add_generation_prompt is not False,
            answer=body.continued_text,
            template_kwargs=body.chat_template_kwargs,
        )

    async def encode_messages(
        self, messages: Sequence[ChatMessage], room: Room, **template: Any
    ) -> ChatPrompt:
        """Raises ApiError 400 for images that this model cannot see or this worker cannot use.

        Args:
            template: as of `Tokenizer.encode_chat`
        """
        if self.sight is None:
            refuse_images(messages, self.model.name)
        check_roles(messages, self.model.tokenizer.chat_template or "")
        rendered = messages_of(messages, as_parts=self.sight is not None)
        if self.sight is not None:
            template["edit"] = self.sight.place.surrounded
        prompt = await self.model.tokenizer.encode_chat(rendered, room, **template)
        token_ids = self._metered(prompt)
        if self.sight is None:
            return ChatPrompt(token_ids)
        filled = await self.sight.fill(token_ids, messages)
        if filled.images and room.keep_last is not None:
            raise bad_request(
                "truncate_prompt_tokens would cut images or videos, so it cannot be used with any",
                "truncate_prompt_tokens",
            )
        return filled

    def answer(self, job: Job, form: Form, *, stream: bool) -> Answer:
        deltas = generate(self.engine, self.model.tokenizer.vocabulary, job, self.metrics)
        return Answer(deltas, form, job, stream=stream)

    def _metered(self, prompt: Prompt) -> list[int]:
        self.prompt_meter.observe(prompt.num_bytes, len(prompt.token_ids))
        return prompt.token_ids
