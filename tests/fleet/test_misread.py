"""msgspec's findings in Pando's words."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest

from pando_fleet.misread import misread


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    number: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    either: int | str = 1
    kind: Literal["x", "y"] = "x"
    inner: list[Inner] = []
    short: Annotated[list[int], msgspec.Meta(max_length=2)] = []
    at: datetime | None = None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"number": 0}, "number must be an integer, at least 1"),
        ({"number": "a"}, "number must be an integer, not a string"),
        ({"either": 1.5}, "either must be an integer or a string, not a number"),
        ({"kind": "z"}, "kind must not be 'z'"),
        ({"inner": [{}]}, "inner[0].name is required"),
        ({"inner": [{"name": "a", "nmae": 1}]}, "inner[0].nmae is an unknown field"),
        ({"inner": [5]}, "inner[0] must be an object, not a number"),
        ({"short": [1, 2, 3]}, "short must have a length of at most 2"),
        ({"at": "noon"}, "at must be a time such as 2030-01-31T00:00:00Z"),
        ([], "the file must be an object, not a list"),
    ],
)
def test_a_value_of_another_type_is_named_with_what_it_must_be(content: Any, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(content, Whole)
    assert misread(raised.value).about("the file") == said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "the file is not JSON: it ends too early"),
        (b"{a", "the file is not JSON: object keys must be strings (byte 1)"),
        (b"{} x", "the file is not JSON: trailing characters (byte 4)"),
    ],
)
def test_what_is_no_json_says_where(data: bytes, said: str) -> None:
    with pytest.raises(msgspec.DecodeError) as raised:
        msgspec.json.decode(data, type=Whole)
    assert misread(raised.value).about("the file") == said
