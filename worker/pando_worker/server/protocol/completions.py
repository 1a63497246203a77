"""POST /v1/completions."""

from pydantic import model_validator

from pando_worker.server.errors import bad_request
from pando_worker.server.protocol.base import Language, TokenId
from pando_worker.server.protocol.openai import OpenAIFields, TopLogprobs
from pando_worker.server.protocol.pieces import Many
from pando_worker.server.protocol.sampling import UNSUPPORTED_SAMPLING, Samples

Prompts = str | Many[TokenId] | Many[str] | Many[Many[TokenId]]
"""One prompt or several, each as text or token ids."""


class CompletionRequest(OpenAIFields):
    UNSUPPORTED = UNSUPPORTED_SAMPLING | {"prompt_logprobs": (), "suffix": ("",)}

    prompt: Prompts
    best_of: Samples | None = None
    echo: bool | None = None
    src_lang: Language | None = None  # of models that translate
    tgt_lang: Language | None = None
    logprobs: TopLogprobs | None = None

    @property
    def samples(self) -> int:
        """Choices to generate for each prompt; the best n are returned."""
        return self.best_of or self.n or 1

    @model_validator(mode="after")
    def _fits_together(self) -> "CompletionRequest":
        n = self.n or 1
        if self.max_tokens == 0 and not self.echo:
            raise bad_request(
                "max_tokens is 0: it must be at least 1 unless echo is true", "max_tokens"
            )
        if self.samples < n:
            raise bad_request(f"best_of is {self.best_of}: it must not be below n ({n})", "best_of")
        if self.stream and self.samples > n:
            raise bad_request("best_of above n cannot be streamed", "best_of")
        return self


def prompts_of(prompts: Prompts) -> list[str | list[int]]:
    """A list of prompts, also for a single one."""
    if isinstance(prompts, str) or not prompts or isinstance(prompts[0], int):
        return [prompts]  # type: ignore[list-item]  # the union's list is of one kind
    return prompts  # type: ignore[return-value]
