"""OpenAI's transcriptions and translations of speech, whose bodies are forms.

A file of sound counts by the digest of its bytes, so a repeated file goes where it was encoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pando_fleet.canonical import sound_bytes
from pando_fleet.http.form import MULTIPART, Form, read_form, with_field
from pando_router.endpoints.endpoint import MODEL, Endpoint
from pando_router.errors import bad_request
from pando_router.requests.request import Request


class SpeechBody(msgspec.Struct, gc=False, kw_only=True):
    model: str
    file: bytes | None = None
    stream: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FormEndpoint(Endpoint[SpeechBody]):
    """An endpoint whose bodies are multipart/form-data, of which the router reads few fields."""

    media: str = field(default=MULTIPART.decode(), init=False)

    def parse(self, body: bytes, content_type: bytes = b"") -> Request:
        return self.read(_fields(read_form(body, content_type)))

    def renamed(self, body: bytes, content_type: bytes, model: str) -> bytes:
        return with_field(body, content_type, "model", model)


def _fields(form: Form) -> SpeechBody:
    model = form.only("model")
    if not model:
        raise bad_request("model is required", "model")
    return SpeechBody(model=model, file=form.files.get("file"), stream=form.only("stream"))


def _read(fields: SpeechBody) -> Request:
    if fields.file is None:
        return Request(model=fields.model)  # the replica refuses it
    prefix, sound = sound_bytes(fields.file)
    is_stream = (fields.stream or "").lower() in ("true", "1")
    return Request(model=fields.model, prefix=prefix, images=(sound,), stream=is_stream)


_EXAMPLE: Mapping[str, Any] = {"model": MODEL, "file": "(a file)"}

TRANSCRIPTIONS = FormEndpoint(
    paths=("/v1/audio/transcriptions",),
    api="OpenAI, vLLM, SGLang",
    placed_by="the bytes of `file`",
    body=SpeechBody,
    read=_read,
    example=_EXAMPLE,
)

TRANSLATIONS = FormEndpoint(
    paths=("/v1/audio/translations",),
    api="OpenAI, vLLM",
    placed_by="the bytes of `file`",
    body=SpeechBody,
    read=_read,
    example=_EXAMPLE,
)
