"""Prompts as canonical bytes: equal where they say the same, extended where a conversation goes on.

One function a kind of body; each takes parsed, unchecked JSON, tools as `tools_bytes` made them,
because a client sends the same ones with every turn. Bytes that UTF-8 never contains
stand before what they introduce (`marks`), so no content can imitate a border, and what is appended
to a conversation extends its bytes. Nothing of an answer's bookkeeping enters: null and empty
fields, ids and states of items, annotations, and marks for another engine's cache.
"""

from pando_fleet.canonical.chat import chat_bytes
from pando_fleet.canonical.marks import PrefixError
from pando_fleet.canonical.messages import messages_bytes
from pando_fleet.canonical.parts import tools_bytes
from pando_fleet.canonical.plain import completion_bytes, pair_bytes
from pando_fleet.canonical.responses import responses_bytes

__all__ = [
    "PrefixError",
    "chat_bytes",
    "completion_bytes",
    "messages_bytes",
    "pair_bytes",
    "responses_bytes",
    "tools_bytes",
]
