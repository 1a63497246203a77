"""The items of a response's input, as a chat's messages.

What the assistant did in one turn is several items: reasoning, texts and calls. A chat has one
message for it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pando_worker.server.errors import bad_request, wrong_value
from pando_worker.server.protocol.chats.turns import AssistantTurn, Message, object_at, string_in

Item = dict[str, Any]

_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = ("input_text", "output_text", "text")
_ASSISTANTS = ("reasoning", "function_call")


def chat_messages(items: Iterable[tuple[Item, str]]) -> Iterator[Message]:
    """
    Args:
        items: each with its place in the request, for errors

    Raises ApiError 400 for an item that cannot be part of a chat.
    """
    turn: AssistantTurn | None = None
    for item, where in items:
        kind = item.get("type", "message")
        if kind in _ASSISTANTS or item.get("role") == "assistant":
            turn = turn or AssistantTurn()
            _add(turn, item, kind, where)
            continue
        if turn is not None:
            yield turn.message()
            turn = None
        match kind:
            case "message":
                yield _message(item, where)
            case "function_call_output":
                yield _output(item, where)
            case _:
                known = "message, reasoning, function_call or function_call_output"
                raise wrong_value(f"{where}.type", known, kind)
    if turn is not None:
        yield turn.message()


def _add(turn: AssistantTurn, item: Item, kind: object, where: str) -> None:
    match kind:
        case "reasoning":
            turn.thoughts += _thoughts(item, where)
        case "function_call":
            call_id, name = string_in(item, "call_id", where), string_in(item, "name", where)
            turn.call(call_id, name, _arguments(item, where))
        case "message":
            turn.texts += _texts(item.get("content"), f"{where}.content")
        case _:
            raise wrong_value(f"{where}.type", "message where it has a role", kind)


def _arguments(item: Item, where: str) -> dict[str, Any]:
    text = string_in(item, "arguments", where)
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        place = f"{where}.arguments"
        raise bad_request(f"{place} is not a JSON object: {error}", place) from None


def _thoughts(item: Item, where: str) -> list[str]:
    """The reasoning itself; its summary where the item has only that."""
    for field_ in ("content", "summary"):
        parts = item.get(field_) or []
        if not isinstance(parts, list):
            raise wrong_value(f"{where}.{field_}", "a list", parts)
        if parts:
            return [string_in(object_at(part, where), "text", where) for part in parts]
    return []


def _texts(content: object, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise wrong_value(where, "a string or a list of parts", content)
    texts = []
    for i, value in enumerate(content):
        part = object_at(value, f"{where}[{i}]")
        match part.get("type"):
            case "output_text" | "input_text" | "text":
                texts.append(string_in(part, "text", f"{where}[{i}]"))
            case "refusal":
                texts.append(string_in(part, "refusal", f"{where}[{i}]"))
            case other:
                raise wrong_value(f"{where}[{i}].type", "output_text or refusal", other)
    return texts


def _message(item: Item, where: str) -> Message:
    role = item.get("role")
    if role not in _ROLES:
        raise wrong_value(f"{where}.role", f"{', '.join(_ROLES[:-1])} or {_ROLES[-1]}", role)
    return {"role": role, "content": _content(item.get("content"), f"{where}.content")}


def _output(item: Item, where: str) -> Message:
    call_id = string_in(item, "call_id", where)
    content = _content(item.get("output"), f"{where}.output")
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _content(content: object, where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong_value(where, "a string or a list of parts", content)
    return [
        _part(object_at(part, f"{where}[{i}]"), f"{where}[{i}]") for i, part in enumerate(content)
    ]


def _part(part: dict[str, Any], where: str) -> dict[str, Any]:
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": string_in(part, "text", where)}
    if kind != "input_image":
        raise wrong_value(f"{where}.type", "input_text or input_image", kind)
    if part.get("image_url") is None and part.get("file_id") is not None:
        raise bad_request(f"{where}.file_id: no files are kept here; send image_url", where)
    image = {"url": string_in(part, "image_url", where)}
    detail = part.get("detail")
    if detail not in (None, "auto", "low", "high", "original"):
        raise wrong_value(f"{where}.detail", "auto, low, high or original", detail)
    if detail:
        image["detail"] = detail
    return {"type": "image_url", "image_url": image}


def with_parts(item: Item) -> Item:
    """The item as the API lists it: a content that is a string becomes a list of one part."""
    if not isinstance(text := item.get("content"), str):
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    part = {"type": kind, "text": text}
    return {"type": "message", **item, "content": [part]}
