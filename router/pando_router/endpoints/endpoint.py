"""`Endpoint`: everything that the router knows about one endpoint."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from pando_fleet.misread import misread
from pando_router.endpoints.error_forms import OPENAI, ErrorForm
from pando_router.errors import bad_request
from pando_router.migration.form import Form
from pando_router.requests.rename import with_model
from pando_router.requests.request import Request

BodyT = TypeVar("BodyT", bound=msgspec.Struct)

MODEL = "my-model"
"""The model in the examples."""

JSON = "application/json"

CACHE_SALT = {"vllm": "cache_salt", "sglang": "cache_salt"}
"""The `salts` of OpenAI's generating endpoints."""


@dataclass(frozen=True, slots=True)
class Replay:
    """How to reduce a request to the start of its prompt and an answer of one token."""

    prompt: tuple[str, ...]  # fields of the body; the first one present holds the prompt
    one_token: Mapping[str, Any]  # fields that limit the answer


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint(Generic[BodyT]):
    """All that differs between endpoints; a default means that the endpoint lacks the feature."""

    paths: tuple[str, ...]  # names of the same endpoint
    api: str  # the API that defines the body, for the documentation
    placed_by: str  # Markdown for the documentation: the fields that form its prefix
    body: type[BodyT]  # the fields that the router reads; only the replica reads the others
    read: Callable[[BodyT], Request]  # raises ApiError 400
    example: Mapping[str, Any]  # a body, for the documentation
    errors: ErrorForm = OPENAI
    # By engine kind, the field that gives a tenant a namespace in the engine's cache.
    salts: Mapping[str, str] = field(default_factory=dict)
    replay: Replay | None = None  # if the prompt leaves a prefix in the cache
    migration: Form | None = None  # if a stream may continue at another replica
    answer_name: re.Pattern[bytes] | None = None  # finds the id of an answer that replicas keep
    media: str = JSON  # the type of its bodies
    _decode: Callable[[bytes], BodyT] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decode", msgspec.json.Decoder(self.body).decode)

    def content_type(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The header that `parse` and `renamed` need; empty for JSON, which is what most send."""
        if self.media == JSON:
            return b""
        return next((value for name, value in headers if name == b"content-type"), b"")

    def parse(self, body: bytes, content_type: bytes = b"") -> Request:
        """Parses a body. Raises ApiError 400 if it cannot be placed.

        Args:
            content_type: as of the method of this name
        """
        try:
            return self.read(self._decode(body))
        except msgspec.ValidationError as error:
            found = misread(error)
            raise bad_request(found.about("the request body"), found.place or None) from error
        except (msgspec.DecodeError, UnicodeError) as error:
            raise bad_request(f"the request body is not valid JSON: {error}") from error
        except RecursionError as error:
            raise bad_request("the request body is nested too deeply") from error

    def renamed(self, body: bytes, content_type: bytes, model: str) -> bytes:
        """A parsed body with another model's name. Raises ApiError 400."""
        return with_model(body, model)
