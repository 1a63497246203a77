"""Refuses conversations of far too many messages before they are read.

Read and validated, 20,000 messages take some 20 MB, of which Python would not return most: what the
event loop makes meanwhile lies among them. Here they are only counted, in a millisecond a MiB.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import msgspec

from pando_worker.server.jobs.prompts import room_for
from pando_worker.server.service import Service
from pando_worker.server.text.long_texts import messages_for, refuse_far_too_many

_COUNTED_BYTES = 4 * 1024 * 1024
"""Of the largest body that is counted: its parser holds the interpreter's lock for 5 ms."""

Count = Callable[[bytes], int]


class _Chat(msgspec.Struct, gc=False):
    messages: list[msgspec.Raw] = []
    truncate_prompt_tokens: Any = None


class _Turn(msgspec.Struct, gc=False):
    role: str | None = None


class _Messages(msgspec.Struct, gc=False):
    messages: list[_Turn] = []


class _Response(msgspec.Struct, gc=False):
    input: list[_Turn] = []
    truncation: str | None = None


_chat = msgspec.json.Decoder(_Chat).decode
_messages = msgspec.json.Decoder(_Messages).decode
_response = msgspec.json.Decoder(_Response).decode


def of_chat(data: bytes) -> int:
    """Messages of a chat's body, or 0 if there may be any number."""
    body = _chat(data)
    return len(body.messages) if body.truncate_prompt_tokens is None else 0


def of_messages(data: bytes) -> int:
    """A body of Anthropic's API: turns that follow one of the same role belong to its message."""
    return sum(1 for _ in groupby(turn.role for turn in _messages(data).messages))


def of_response(data: bytes) -> int:
    """As many messages as a response's input becomes at least, or 0 if there may be any number:
    each item of the user, and what stands between these if some of it is the assistant's."""
    body = _response(data)
    if body.truncation == "auto":
        return 0
    messages = 0
    for is_user, run in groupby((turn.role for turn in body.input), lambda role: role == "user"):
        roles = list(run)
        messages += len(roles) if is_user else "assistant" in roles
    return messages


def refuse_long(service: Service, count: Count, param: str) -> Callable[[bytes], None]:
    """What refuses a body, with ApiError 400. One that is none it leaves to its reader."""

    def check(data: bytes) -> None:
        room = room_for(service, param, keep_last=None, output=0)
        if len(data) > _COUNTED_BYTES or data.count(b"{") <= messages_for(room):
            return
        try:
            counted = count(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return
        refuse_far_too_many(counted, room)

    return check
