"""LoRA adapters, and their memory."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode

from pando_worker.adapters.info import RANK_PAGE

LORA_SLOTS = 8
"""The slots of a worker that has adapters from the start, unless `max_loras` says otherwise."""


def _words(value: Any) -> Any:
    """ "a,b" as a list; other types are validated as they are."""
    if not isinstance(value, str):
        return value
    return [word.strip() for word in value.split(",") if word.strip()]


def _are_modules(words: tuple[str, ...]) -> tuple[str, ...]:
    names: set[str] = set()
    for word in words:
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise ValueError(f"{word!r} is not name=path; separate several with commas")
        if name in names:
            raise ValueError(f"{name!r} has two paths")
        names.add(name)
    return words


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]


class AdapterSettings(BaseSettings):
    lora_modules: Annotated[
        Words,
        AfterValidator(_are_modules),
        Field(
            description="LoRA adapters to serve from the start, name=path of a folder in PEFT's"
            " format or name=hub id; the name is a model name in the API. The worker is ready once"
            " all are checked"
        ),
    ] = ()
    pinned_loras: Annotated[
        Words, Field(description="names of lora_modules that always stay in device memory")
    ] = ()
    max_loras: Annotated[
        int | None,
        Field(
            ge=0,
            le=1024,
            description="LoRA adapters in device memory at once, which one batch may mix; 0: none"
            f" are served. By default {LORA_SLOTS} if lora_modules names any, else 0",
        ),
    ] = None
    max_lora_rank: Annotated[
        int, Field(ge=1, le=256, description="largest rank of an adapter; higher ones are refused")
    ] = 64
    lora_ranks: Annotated[
        int | None,
        Field(
            ge=1,
            description="sum of the ranks of all adapters in device memory, each rounded up to a"
            f" multiple of {RANK_PAGE}, for linear layers outside experts; by default {RANK_PAGE}"
            " for each of max_loras, and at least max_lora_rank",
        ),
    ] = None
    lora_host_mib: Annotated[
        int,
        Field(
            ge=1,
            description="host memory for adapters that were used before, in MiB, with the shares of"
            " all ranks; the rest is read from disk when it is needed",
        ),
    ] = 1024

    @model_validator(mode="after")
    def _adapters_fit(self) -> Self:
        names = {name for name, _ in self.lora_paths}
        if unknown := sorted(set(self.pinned_loras) - names):
            raise ValueError(f"pinned_loras has {unknown[0]!r}, which lora_modules does not name")
        if self.lora_modules and self.max_loras == 0:
            raise ValueError("lora_modules needs max_loras above 0")
        if self.lora_ranks is not None and self.lora_ranks < self.max_lora_rank:
            raise ValueError(
                f"lora_ranks ({self.lora_ranks}) must not be below max_lora_rank"
                f" ({self.max_lora_rank})"
            )
        return self

    @property
    def lora_paths(self) -> list[tuple[str, str]]:
        """Name and path of each of `lora_modules`."""
        return [(name, path) for name, _, path in (m.partition("=") for m in self.lora_modules)]

    @property
    def adapter_slots(self) -> int:
        """Adapters in device memory at once; 0 if none are served."""
        if self.max_loras is None:
            return LORA_SLOTS if self.lora_modules else 0
        return self.max_loras

    @property
    def adapter_pages(self) -> int:
        """Rank pages of all slots together; 0 if no adapters are served."""
        ranks = self.lora_ranks or max(self.adapter_slots * RANK_PAGE, self.max_lora_rank)
        return -(-ranks // RANK_PAGE) if self.adapter_slots else 0
