"""POST /rerank, in the form of Jina, Cohere and vLLM, and POST /score, in vLLM's."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pando_worker.server.errors import bad_request
from pando_worker.server.protocol.base import Neutral
from pando_worker.server.protocol.pieces import Many
from pando_worker.server.protocol.pooled.fields import PooledFields

MAX_PAIRS = 2048  # of a request, like the inputs of one for embeddings


class _Pairs(PooledFields):
    # False: logits in place of the scores that the model's files make of them.
    use_activation: bool | None = None


class TextDocument(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    text: str


class RerankRequest(_Pairs):
    UNSUPPORTED: ClassVar[Mapping[str, Neutral]] = {
        "max_chunks_per_doc": (),
        "max_tokens_per_doc": (),
        "mm_processor_kwargs": ({},),
        "rank_fields": ([], ["text"]),
    }

    query: str
    documents: Annotated[Many[str | TextDocument], Field(min_length=1, max_length=MAX_PAIRS)]
    top_n: Annotated[int, Field(ge=0)] | None = None  # 0 and null: all of them
    return_documents: bool | None = None  # true unless false

    @property
    def texts(self) -> list[str]:
        return [one if isinstance(one, str) else one.text for one in self.documents]


class ScoreRequest(_Pairs):
    UNSUPPORTED: ClassVar[Mapping[str, Neutral]] = {
        "label_token_ids": (),
        "mm_processor_kwargs": ({},),
    }

    text_1: str | Many[str] | None = None
    text_2: str | Many[str] | None = None
    # vLLM's other names for them.
    queries: str | Many[str] | None = None
    documents: str | Many[str] | None = None

    @model_validator(mode="after")
    def _pair_up(self) -> "ScoreRequest":
        if not self.firsts or not self.seconds:
            raise bad_request("text_1 and text_2 are required, each a text or some", "text_1")
        count, others = len(self.firsts), len(self.seconds)
        if count not in (1, others):
            raise bad_request(
                f"text_1 has {count} texts and text_2 has {others}: give one text_1, or as many as"
                " text_2",
                "text_1",
            )
        if others > MAX_PAIRS:
            raise bad_request(
                f"a request may have at most {MAX_PAIRS} pairs, not {others}", "text_2"
            )
        return self

    @property
    def firsts(self) -> list[str]:
        return _listed(self.queries if self.text_1 is None else self.text_1)

    @property
    def seconds(self) -> list[str]:
        return _listed(self.documents if self.text_2 is None else self.text_2)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        firsts, seconds = self.firsts, self.seconds
        if len(firsts) == 1:
            firsts *= len(seconds)
        return list(zip(firsts, seconds, strict=True))


def _listed(texts: str | list[str] | None) -> list[str]:
    if texts is None:
        return []
    return [texts] if isinstance(texts, str) else texts
