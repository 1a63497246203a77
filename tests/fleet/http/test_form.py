"""Forms as clients write them, in any pieces; and what is no form."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.filepost import encode_multipart_formdata

from pando_fleet.http.errors import ApiError
from pando_fleet.http.form import (
    MAX_FIELD_BYTES,
    MAX_PARTS,
    FormReader,
    read_form,
    with_field,
)

TYPE = b"multipart/form-data; boundary=xyz"

NAMES = st.text("abcdefgh[]_-.", min_size=1, max_size=8)
FIELDS = st.dictionaries(
    NAMES,
    st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=3),
    max_size=5,
)
BYTES = st.binary(max_size=60) | st.sampled_from(
    [b"\r\n--xyz", b"\r\n--xy", b"--xyz--", b"\r\n--xyzz\r\n", b"\r\n\r\n", b"\r"]
)


def part(name: str, value: bytes, file: str | None = None) -> bytes:
    said = f'form-data; name="{name}"' + (f'; filename="{file}"' if file is not None else "")
    return b"\r\n".join([b"--xyz", b"Content-Disposition: " + said.encode(), b"", value, b""])


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--xyz--\r\n"


def written(fields: dict[str, list[str]], file: bytes) -> tuple[bytes, bytes]:
    """Body and content-type, as the client urllib3 writes them."""
    parts = [(name, value) for name, values in fields.items() for value in values]
    body, content_type = encode_multipart_formdata([*parts, ("file", ("a b.wav", file))])
    return body, content_type.encode()


@given(FIELDS, BYTES, st.lists(st.integers(0, 600), max_size=6))
def test_what_a_client_writes_is_read_in_any_pieces(
    fields: dict[str, list[str]], file: bytes, cuts: list[int]
) -> None:
    body, content_type = written(fields, file)
    reader = FormReader(content_type)
    for start, end in pairwise(sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})):
        reader.feed(body[start:end])
    found = reader.form()
    assert found.fields == fields
    assert found.files == {"file": file}


@given(BYTES, BYTES)
def test_borders_end_a_file_and_what_resembles_them_does_not(before: bytes, file: bytes) -> None:
    content = before + b"-" + file
    try:
        found = read_form(form(part("file", content, "f")), TYPE)
    except ApiError:
        assert b"\r\n--xyz" in b"\r\n" + content
    else:  # the last border ends the form, whatever follows it
        assert found.files["file"] == content.partition(b"\r\n--xyz--")[0]


@pytest.mark.parametrize("value", ["another", "x", "日本"])
def test_a_field_is_replaced_and_all_other_bytes_stay(value: str) -> None:
    file = bytes(range(256)) * 3 + b'model=tiny\r\nname="model"'
    parts = part("file", file, "a.wav"), part("language", b"en")
    body = form(parts[0], part("model", b"tiny"), parts[1])
    assert with_field(body, TYPE, "model", value) == form(
        parts[0], part("model", value.encode()), parts[1]
    )


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (b"{}", b"application/json", 400, "must be multipart/form-data, not 'application/json'"),
        (b"{}", b"", 400, "must be multipart/form-data, not ''"),
        (b"{}", b"multipart/form-data", 400, "must be multipart/form-data"),
        (b"", TYPE, 400, "ends before its last part does"),
        (form(part("a", b"1"))[:-9], TYPE, 400, "ends before its last part does"),
        (b"junk", TYPE, 400, "is not multipart/form-data"),
        (form(b"--xyz\r\nA B: c\r\n\r\n\r\n"), TYPE, 400, "is not multipart/form-data"),
        (form(b"--xyz\r\n\r\nvalue\r\n"), TYPE, 400, "has no name"),
        (form(b"--xyz\r\nX: " + b"y" * 10_000 + b"\r\n\r\n\r\n"), TYPE, 400, "header size"),
        (form(part("a", b"\xff")), TYPE, 400, "a is not UTF-8"),
        (form(part("a", bytes(MAX_FIELD_BYTES + 1))), TYPE, 400, "a has more than 65536 bytes"),
        (form(*[part("a", b"")] * (MAX_PARTS + 1)), TYPE, 400, "more than 64 parts"),
        (form(part("a", b"\r\n--xyz!" * 100, "f")), TYPE, 400, "more than 64 parts"),
        (form(part("a", b"1", "f"), part("a", b"2", "f")), TYPE, 400, "a is given several times"),
        (form(part("a", bytes(101), "f")), TYPE, 413, "a has more than 100 bytes"),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else None,
)
def test_what_is_refused_says_why(
    body: bytes, content_type: bytes, status: int, message: str
) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        reader = FormReader(content_type, max_file_bytes=100)
        reader.feed(body)
        reader.form()
    assert refused.value.status == status


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for data in (body, b"--xyz\r\n" + body, part("a", body) + body):
        try:
            read_form(data, TYPE)
        except ApiError as error:
            assert error.status == 400


def test_a_field_that_may_stand_once_is_refused_twice() -> None:
    found = read_form(form(part("a", b"1"), part("a", b"2"), part("b", b"3")), TYPE)
    assert (found.only("b"), found.only("c")) == ("3", None)
    with pytest.raises(ApiError, match="a is given 2 times"):
        found.only("a")


def test_another_value_is_never_written_into_a_file_of_the_same_name() -> None:
    body = form(part("model", b"a file", "m"), part("model", b"alias"))
    found = read_form(with_field(body, TYPE, "model", "real"), TYPE)
    assert (found.files["model"], found.fields["model"]) == (b"a file", ["real"])
