"""Bodies of multipart/form-data (RFC 7578), read as they arrive and within bounds.

Workers and routers use the same reader, so that both see the same fields: a router checks by the
field `model` what a key may use.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from pando_fleet.http.errors import ApiError, bad_request

MULTIPART = b"multipart/form-data"

MAX_PARTS = 64
MAX_FIELD_BYTES = 64 * 1024

_DISPOSITION = b"content-disposition"

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of each malformed body


@dataclass(frozen=True, slots=True)
class Form:
    """
    Attributes:
        fields: values in the order in which they came, by the names of their fields
        files: contents, by the names of their fields
    """

    fields: Mapping[str, list[str]]
    files: Mapping[str, bytes]

    def only(self, name: str) -> str | None:
        """The value of a field that may stand once.

        Raises:
            ApiError: 400, it stands more often.
        """
        values = self.fields.get(name, [])
        if len(values) > 1:
            raise bad_request(f"{name} is given {len(values)} times", name)
        return values[0] if values else None


class _Part:
    __slots__ = ("data", "disposition", "is_file", "name", "span")

    def __init__(self) -> None:
        self.disposition = b""
        self.name = ""
        self.is_file = False
        self.data = bytearray()
        self.span = (0, 0)  # of its data, in what was fed last


class FormReader:
    """Call `feed` with each piece of a body, then `form`. All raise ApiError 400 for a body that is
    no such form, 413 for a file that is too long."""

    def __init__(self, content_type: bytes, max_file_bytes: int | None = None) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind.lower() != MULTIPART or not boundary:
            given = content_type.decode("latin-1")[:100]
            raise bad_request(
                f"the request's content-type must be multipart/form-data, not {given!r}"
            )
        self._border = b"\r\n--" + boundary
        self._max_file_bytes = max_file_bytes
        self._parts: list[_Part] = []
        self._header = b""
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_begin": self._begin_header,
                    "on_header_field": self._add_to_name,
                    "on_header_value": self._add_to_value,
                    "on_headers_finished": self._read_disposition,
                    "on_part_data": self._add,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise _malformed(error) from error
        self._borders = 0

    def feed(self, data: bytes) -> None:
        # What looks like a border costs the parser far more than other data.
        self._borders += data.count(self._border)
        if self._borders > MAX_PARTS:
            raise bad_request(f"the form has more than {MAX_PARTS} parts")
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _malformed(error) from error

    def form(self) -> Form:
        if not self._ended:
            raise bad_request("the form ends before its last part does")
        fields: dict[str, list[str]] = {}
        files: dict[str, bytes] = {}
        for part in self._parts:
            if not part.is_file:
                fields.setdefault(part.name, []).append(_text(part))
            elif part.name in files:
                raise bad_request(f"{part.name} is given several times", part.name)
            else:
                files[part.name] = bytes(part.data)
        return Form(fields, files)

    def span(self, name: str) -> tuple[int, int] | None:
        """Where the value of a field that is no file is, in a body that was fed as a whole."""
        fields = (part for part in self._parts if not part.is_file)
        return next((part.span for part in fields if part.name == name), None)

    def _begin(self) -> None:
        self._parts.append(_Part())

    def _begin_header(self) -> None:
        self._header = b""

    def _add_to_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        if self._header.lower() == _DISPOSITION:
            self._parts[-1].disposition += data[start:end]

    def _read_disposition(self) -> None:
        part = self._parts[-1]
        kind, options = parse_options_header(part.disposition)
        name = options.get(b"name")
        if kind != b"form-data" or name is None:
            raise bad_request("a part of the form has no name")
        part.name = name.decode(errors="replace")
        part.is_file = b"filename" in options

    def _add(self, data: bytes, start: int, end: int) -> None:
        part = self._parts[-1]
        part.data += memoryview(data)[start:end]
        part.span = (start, end)
        most = self._max_file_bytes if part.is_file else MAX_FIELD_BYTES
        if most is not None and len(part.data) > most:
            message = f"{part.name[:100]} has more than {most} bytes"
            if part.is_file:
                raise ApiError(413, message, param=part.name, code="request_too_large")
            raise bad_request(message, part.name)

    def _end(self) -> None:
        self._ended = True


def read_form(body: bytes, content_type: bytes, max_file_bytes: int | None = None) -> Form:
    """A whole body. Raises as `FormReader` does."""
    reader = FormReader(content_type, max_file_bytes)
    reader.feed(body)
    return reader.form()


def with_field(body: bytes, content_type: bytes, name: str, value: str) -> bytes:
    """A body with another value of a field that it has once, and all other bytes as they are."""
    reader = FormReader(content_type)
    reader.feed(body)
    span = reader.span(name)
    assert span is not None, name
    start, end = span
    return b"".join([memoryview(body)[:start], value.encode(), memoryview(body)[end:]])


def _text(part: _Part) -> str:
    try:
        return part.data.decode()
    except UnicodeDecodeError as error:
        raise bad_request(f"{part.name} is not UTF-8", part.name) from error


def _malformed(error: FormParserError) -> ApiError:
    return bad_request(f"the request body is not multipart/form-data: {error}")
