"""What every endpoint works with: the model as it is served, and the process's shared parts."""

import time
from dataclasses import dataclass, field

from starlette.requests import Request

from pando_worker.messages import SamplingParams
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import ApiError, bad_request, unavailable
from pando_worker.server.gate import Gate
from pando_worker.server.generation import Job
from pando_worker.server.generation_config import GenerationConfig
from pando_worker.server.metrics import Metrics
from pando_worker.server.prompt_meter import PromptMeter
from pando_worker.server.protocol import ChatRequest, SamplingFields, messages_of
from pando_worker.server.sampling import sampling_params
from pando_worker.server.tokenizer import Prompt, Tokenizer
from pando_worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    name: str
    tokenizer: Tokenizer
    generation: GenerationConfig
    vocab_size: int  # rows of the embedding: ids below it may be sent
    created: int = field(default_factory=lambda: int(time.time()))  # Unix time

    def check_name(self, name: str | None) -> None:
        """Raises ApiError 404 where a request names another model; null is any."""
        if name is not None and name != self.name:
            raise ApiError(
                404,
                f"model {name[:200]!r} does not exist; there is {self.name!r}",
                param="model",
                code="model_not_found",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    settings: WorkerSettings
    model: ServedModel
    engine: EngineClient
    gate: Gate
    metrics: Metrics
    prompt_meter: PromptMeter

    @property
    def context_length(self) -> int:
        """Tokens that a request may have, prompt and output together."""
        if self.engine.ready is None:
            raise unavailable("the model is still loading", "model_loading")
        return self.engine.ready.max_request_tokens

    async def encode(self, text: str) -> list[int]:
        """Token ids of a text prompt."""
        prompt = await self.model.tokenizer.encode(text)
        return self._metered(prompt)

    async def encode_chat(self, body: ChatRequest) -> list[int]:
        """Token ids of a conversation in the model's chat template."""
        prompt = await self.model.tokenizer.encode_chat(
            messages_of(body.messages), template_kwargs=body.chat_template_kwargs
        )
        return self._metered(prompt)

    def job(
        self,
        request: Request,
        fields: SamplingFields,
        input_ids: list[int],
        *,
        prompt_param: str,
        max_tokens: int | None,
        name: str | None = None,
    ) -> Job:
        """Checks a prompt against the model and makes the job; `max_tokens` None is all that fits.

        Raises ApiError 400 for a prompt or a max_tokens that does not fit.
        """
        self._check_prompt(input_ids, prompt_param)
        remaining = self.context_length - len(input_ids)
        if max_tokens is not None and max_tokens > remaining:
            raise bad_request(
                f"this model's context has {self.context_length} tokens, but {len(input_ids)} of"
                f" prompt and max_tokens {max_tokens} are {len(input_ids) + max_tokens}",
                "max_tokens",
                "context_length_exceeded",
            )
        sampling: SamplingParams = sampling_params(
            fields, self.model.generation, remaining if max_tokens is None else max_tokens
        )
        return Job(
            name=name or request.state.request_id,
            input_ids=input_ids,
            sampling=sampling,
            stop=fields.stop,
            include_stop=fields.include_stop_str_in_output,
            received=request.state.received,
        )

    def _metered(self, prompt: Prompt) -> list[int]:
        self.prompt_meter.observe(prompt.num_bytes, len(prompt.token_ids))
        return prompt.token_ids

    def _check_prompt(self, input_ids: list[int], param: str) -> None:
        if not input_ids:
            raise bad_request("the prompt has no tokens", param)
        if max(input_ids) >= self.model.vocab_size:
            raise bad_request(
                f"token id {max(input_ids)} is not below the vocabulary's size"
                f" {self.model.vocab_size}",
                param,
            )
        if len(input_ids) >= self.context_length:
            raise bad_request(
                f"this model's context has {self.context_length} tokens, but the prompt alone has"
                f" {len(input_ids)}",
                param,
                "context_length_exceeded",
            )
