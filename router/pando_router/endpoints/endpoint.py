"""What the router knows of one endpoint, in one object."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from pando_router.endpoints.error_forms import OPENAI, ErrorForm
from pando_router.errors import bad_request
from pando_router.migration.form import Form
from pando_router.requests.request import Request

BodyT = TypeVar("BodyT", bound=msgspec.Struct)

MODEL = "my-model"
"""That the examples ask for."""

CACHE_SALT = {"vllm": "cache_salt", "sglang": "cache_salt"}
"""The `salts` of OpenAI's generating endpoints."""


@dataclass(frozen=True, slots=True)
class Replay:
    """How a request is cut down to the beginning of its prompt and to an answer of one token."""

    prompt: tuple[str, ...]  # fields of the body: the first one that is given holds the prompt
    one_token: Mapping[str, Any]  # fields that bound the answer


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint(Generic[BodyT]):
    """All that differs between endpoints; a default means that there is nothing of the kind."""

    paths: tuple[str, ...]  # names of the same endpoint
    api: str  # whose form the body has, for the documentation
    placed_by: str  # Markdown for the documentation: the fields that make its prefix
    body: type[BodyT]  # the fields that the router reads; the others are the replica's
    read: Callable[[BodyT], Request]  # raises ApiError 400
    example: Mapping[str, Any]  # a body, for the documentation
    errors: ErrorForm = OPENAI
    # The field that gives a tenant a name space in an engine's cache, by the engine's kind.
    salts: Mapping[str, str] = field(default_factory=dict)
    replay: Replay | None = None  # only where a prompt leaves a prefix that generation goes on from
    migration: Form | None = None  # only where a stream may go on at another replica
    answer_name: re.Pattern[bytes] | None = None  # finds by what name the replica keeps its answer
    _decode: Callable[[bytes], BodyT] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decode", msgspec.json.Decoder(self.body).decode)

    def parse(self, body: bytes) -> Request:
        """Raises ApiError 400 for what cannot be placed."""
        try:
            return self.read(self._decode(body))
        except msgspec.ValidationError as error:
            raise bad_request(str(error), _param(error)) from error
        except (msgspec.DecodeError, UnicodeError) as error:
            raise bad_request(f"the request body is not valid JSON: {error}") from error
        except RecursionError as error:
            raise bad_request("the request body is nested too deeply") from error


def _param(error: msgspec.ValidationError) -> str | None:
    """The field's name in "... at `$.messages[0]`" or "... missing required field `messages`"."""
    found = re.search(r"\$\.(\w+)|missing required field `(\w+)`", str(error))
    return (found[1] or found[2]) if found else None
