"""Long lists are validated in pieces, with the findings of a list that is validated at once."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pando_worker.server.protocol import pieces
from pando_worker.server.protocol.chats.chat import ChatRequest
from pando_worker.server.protocol.completions import CompletionRequest
from pando_worker.server.protocol.pieces import PIECE, Many

LONG = 5 * PIECE + 7
TURN = {"role": "user", "content": "x"}


class Pieced(BaseModel):
    model_config = ConfigDict(strict=True)
    numbers: Annotated[Many[Annotated[int, Field(ge=0)]], Field(min_length=1)] | Many[Many[str]]


class Whole(BaseModel):
    model_config = ConfigDict(strict=True)
    numbers: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | list[list[str]]


def first_of_each_branch(kind: type[BaseModel], numbers: object) -> list[dict[str, Any]]:
    """Without the names of branches, which differ."""
    with pytest.raises(ValidationError) as caught:
        kind(numbers=numbers)
    found: dict[object, dict[str, Any]] = {}
    for one in caught.value.errors(include_url=False):
        path = [part for part in one["loc"] if isinstance(part, int)]
        context = {k: v for k, v in one.get("ctx", {}).items() if k in ("ge", "min_length")}
        found.setdefault(one["loc"][1], {"type": one["type"], "path": path, "ctx": context})
    return list(found.values())


@pytest.mark.parametrize("at", [0, PIECE - 1, PIECE, LONG - 1])
@pytest.mark.parametrize("wrong", ["a", -1, None, [1]])
def test_the_first_finding_has_its_place_in_the_whole_list(at: int, wrong: object) -> None:
    numbers: list[object] = [1] * LONG
    numbers[at] = wrong
    found = first_of_each_branch(Pieced, numbers)
    assert found == first_of_each_branch(Whole, numbers)


@pytest.mark.parametrize("numbers", [[], "a", None, {}, (1,) * LONG])
def test_what_is_no_such_list_is_found_as_before(numbers: object) -> None:
    assert Pieced.model_fields.keys() == Whole.model_fields.keys()
    if numbers == []:  # of the second kind
        assert Pieced(numbers=[]).numbers == Whole(numbers=[]).numbers == []
        return
    assert first_of_each_branch(Pieced, numbers) == first_of_each_branch(Whole, numbers)


def test_long_lists_are_what_they_were() -> None:
    assert Pieced(numbers=list(range(LONG))).numbers == list(range(LONG))
    assert Pieced(numbers=[["a"]] * LONG).numbers == [["a"]] * LONG


def test_one_error_is_kept_of_many() -> None:
    with pytest.raises(ValidationError) as caught:
        CompletionRequest.model_validate({"model": "m", "prompt": [None] * 50_000})
    assert len(caught.value.errors()) < 10


def test_our_own_words_survive() -> None:
    messages = [TURN] * LONG + [{"role": "user", "content": [{"type": "{x}"}]}]
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate({"model": "m", "messages": messages})
    (found,) = caught.value.errors()
    assert found["loc"] == ("messages", LONG, "content")
    assert "has a part of type '{x}', not 'text'" in found["msg"]


def test_compiled_code_gets_a_piece_at_a_time() -> None:
    taken: list[int] = []

    def validate(value: list[int]) -> list[int]:
        taken.append(len(value))
        return value

    adapter = TypeAdapter(Many[int])
    numbers = list(range(LONG))
    assert pieces.in_pieces(numbers, validate) == adapter.validate_python(numbers) == numbers
    assert taken == [PIECE] * 5 + [7]
