"""What messages and responses have in common: checks of their parts, and a turn of the assistant,
which they send in parts and a chat has as one message."""

from dataclasses import dataclass, field
from typing import Any

from pando_worker.server.errors import wrong_value

Message = dict[str, Any]
"""A chat's message, as `ChatRequest` reads it."""


@dataclass(slots=True)
class AssistantTurn:
    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)  # as in a chat

    def call(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        function = {"name": name, "arguments": arguments}
        self.calls.append({"id": call_id, "type": "function", "function": function})

    def message(self) -> Message:
        content = "\n".join(self.texts) if self.texts else None
        message: Message = {"role": "assistant", "content": content}
        if self.thoughts:
            message["reasoning_content"] = "\n".join(self.thoughts)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


def object_at(value: object, where: str) -> dict[str, Any]:
    """Raises ApiError 400 for another value; `where` is its place in the request."""
    if not isinstance(value, dict):
        raise wrong_value(where, "an object", value)
    return value


def string_in(part: dict[str, Any], name: str, where: str) -> str:
    """A field of a part. Raises ApiError 400 if it is no string."""
    if not isinstance(value := part.get(name), str):
        raise wrong_value(f"{where}.{name}", "a string", value)
    return value
