"""The state that all endpoints share: the served model and the parts of the process."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from pando_fleet.images.rule import ImageRule
from pando_fleet.traces import Tracing
from pando_worker.messages import Ready
from pando_worker.models.generation_config import GenerationConfig
from pando_worker.models.kinds.classifier import Classifier
from pando_worker.parsers.formats import ShowTools, ToolFormat
from pando_worker.parsers.reasoning import ReasoningFormat
from pando_worker.progress import in_words
from pando_worker.server.adapters import NamedAdapter, NamedAdapters
from pando_worker.server.answers.answer import Answer, Form
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import ApiError, bad_request, unavailable
from pando_worker.server.front.admin import Admin
from pando_worker.server.front.gate import Gate
from pando_worker.server.generation import Job, generate
from pando_worker.server.hearing import Hearing
from pando_worker.server.images import ChatPrompt, RequestPart, Sight, parts_of, unseen
from pando_worker.server.kept_responses import KeptResponses
from pando_worker.server.metrics import Metrics
from pando_worker.server.pooling import LAST_TOKEN, Embeddings, NoEmbeddings
from pando_worker.server.protocol.chats.chat import (
    ChatMessage,
    ChatRequest,
    check_roles,
    messages_of,
    without_volatile_line,
)
from pando_worker.server.source_text import SourceTexts
from pando_worker.server.text.long_texts import Room, refuse_far_too_many
from pando_worker.server.text.pairs import TokenPair
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
    source: SourceTexts | None = None  # of an encoder-decoder that reads text
    is_text_encoder: bool = False  # it embeds or classifies
    pooling: Embeddings | NoEmbeddings = LAST_TOKEN
    classifier: Classifier | None = None
    tool_format: ToolFormat
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
    admin: Admin
    metrics: Metrics
    prompt_meter: PromptMeter
    adapters: NamedAdapters
    kept_responses: KeptResponses
    sight: Sight | None = None  # of a model that sees
    hearing: Hearing | None = None  # of a model that hears
    tracing: Tracing | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the model can be used, and what reads images or sound for it."""
        sees_yet = self.sight is None or self.sight.reader.place is not None
        hears_yet = self.hearing is None or self.hearing.reader.form is not None
        is_able = sees_yet and hears_yet and not self._lacking_modules
        return self.engine.ready is not None and is_able

    def check_ready(self) -> None:
        """Raises ApiError 503 unless new requests are served."""
        if self.gate.draining:
            raise unavailable("this worker is shutting down", "draining")
        if not self.engine.alive or not self.is_loaded:
            raise unavailable(f"the model is still loading{self._now}", "model_loading")
        if self.engine.is_stalled:
            raise unavailable("the engine has not responded for some seconds", "engine_stalled")

    @property
    def image_rule(self) -> ImageRule | None:
        """By which routers know the tokens of images, or of sound."""
        if self.hearing is not None:
            return self.hearing.rule
        return self.sight.reader.rule if self.sight else None

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
            raise unavailable(f"the model is still loading{self._now}", "model_loading")
        return self.engine.ready

    @property
    def _now(self) -> str:
        """What is being loaded, at the end of a sentence."""
        loading = self.engine.loading
        if loading is None or self.engine.ready:
            return ""
        return f": {in_words(loading.stage, loading.done)}"

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

    async def encode_pair(self, first: str, second: str, room: Room) -> TokenPair:
        """Two texts as one prompt of a cross-encoder."""
        pair = await self.model.tokenizer.encode_pair(first, second, room)
        await asyncio.sleep(0)  # a text can take 20 ms: let other requests run
        return pair

    async def encode_chat(self, body: ChatRequest, room: Room) -> ChatPrompt:
        """A conversation in the model's chat template. If its last message is continued, the prompt
        ends with that message's text."""
        continued = body.continue_final_message
        tools = body.tools
        if self._own_tools and body.tool_choice == "none":
            tools = None  # their text would ask for calls, which nothing would read
        return await self.encode_messages(
            body.messages[:-1] if continued else body.messages,
            room,
            tools=tools,
            # A continued message follows the generation prompt, like any answer.
            add_generation_prompt=continued or body.add_generation_prompt is not False,
            answer=body.continued_text,
            template_kwargs=body.template_kwargs,
        )

    async def encode_messages(
        self,
        messages: Sequence[ChatMessage],
        room: Room,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        **template: Any,
    ) -> ChatPrompt:
        """Raises ApiError 400 for images that this model cannot see or this worker cannot use.

        Args:
            tools: as `read_tool_use` accepts them
            template: as of `Tokenizer.encode_chat`
        """
        refuse_far_too_many(len(messages), room)
        if self.settings.drop_volatile_lines:
            messages, form = without_volatile_line(messages)
            if form:
                self.metrics.volatile_lines.labels(form).inc()
        parts = parts_of(messages)
        if self.sight is None and parts:
            raise unseen(parts[0], self.model.name)
        tokenizer = self.model.tokenizer
        rendered = await tokenizer.run(lambda: self._rendered(messages, tools), [messages, tools])
        if not self._own_tools:
            template["tools"] = tools
        if self.sight is None:
            prompt = await tokenizer.encode_chat(rendered, room, **template)
            return ChatPrompt(self._metered(prompt))
        seen = await self.sight.read(parts, "messages")
        template["edit"] = seen.surrounded
        prompt = await tokenizer.encode_chat(rendered, room, **template)
        filled = seen.filled(self._metered(prompt))
        if filled.images and room.keep is not None:
            raise bad_request(
                "truncate_prompt_tokens would cut images or videos, so it cannot be used with any",
                "truncate_prompt_tokens",
            )
        return filled

    def _rendered(
        self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] | None
    ) -> list[dict[str, Any]]:
        """For the chat template."""
        source = self.model.tokenizer.chat_template or ""
        check_roles(messages, source)
        rendered = messages_of(messages, source, as_parts=self.sight is not None)
        return self._own_tools(rendered, tools, source) if self._own_tools else rendered

    async def encode_with_images(
        self, prompt: str | list[int], parts: Sequence[RequestPart], param: str, room: Room
    ) -> ChatPrompt:
        """A prompt whose own image tokens stand for these images, in this order.

        Raises ApiError 400 for images that this model cannot see or this worker cannot use, and for
        more or fewer of them than the prompt has image tokens.

        Args:
            parts: one at least
        """
        if self.sight is None:
            raise unseen(parts[0], self.model.name)
        seen = await self.sight.read(parts, param)
        if isinstance(prompt, str):
            encoded = await self.model.tokenizer.encode(seen.surrounded(prompt), room)
            prompt = self._metered(encoded)
        return seen.filled(prompt)

    def answer(self, job: Job, form: Form, *, stream: bool) -> Answer:
        deltas = generate(self.engine, self.model.tokenizer.vocabulary, job, self.metrics)
        return Answer(deltas, form, job, stream=stream)

    @property
    def _own_tools(self) -> ShowTools | None:
        return self.model.tool_format.show_tools

    def _metered(self, prompt: Prompt) -> list[int]:
        self.prompt_meter.observe(prompt.num_bytes, len(prompt.token_ids))
        return prompt.token_ids
