"""Lists of a request's body, which may be long: validated up to the first error, in pieces.

Compiled code validates a list, and keeps the interpreter's lock until it ends. Between two pieces
the event loop has a turn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import (
    CoreSchema,
    ListSchema,
    no_info_wrap_validator_function,
)

from pando_fleet.http.off_loop import let_the_loop_turn

T = TypeVar("T")

PIECE = 256  # items, the largest of which take some 10 µs each


def in_pieces(value: Any, validate: Callable[[Any], list[Any]]) -> list[Any]:
    """What `validate` makes of a list. Raises its ValidationError."""
    if not isinstance(value, list) or len(value) <= PIECE:
        return validate(value)
    found: list[Any] = []
    for start in range(0, len(value), PIECE):
        let_the_loop_turn()
        try:
            found += validate(value[start : start + PIECE])
        except ValidationError as error:
            raise _moved(error, start) from None
    return found


def _moved(error: ValidationError, by: int) -> ValidationError:
    """The error of a piece, with the places in the whole list."""
    details = []
    for one in error.errors(include_url=False):
        index, *within = one["loc"]
        context = {**one.get("ctx", {}), "_said": one["msg"]}
        details.append(
            InitErrorDetails(
                type=PydanticCustomError(one["type"], "{_said}", context),
                loc=(int(index) + by, *within),
                input=one["input"],
            )
        )
    return ValidationError.from_exception_data(error.title, details)


@dataclass(frozen=True, slots=True)
class InPieces:
    """Metadata of a list's type."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = cast(ListSchema, handler(source))
        return no_info_wrap_validator_function(in_pieces, {**schema, "fail_fast": True})


Many = Annotated[list[T], InPieces()]
