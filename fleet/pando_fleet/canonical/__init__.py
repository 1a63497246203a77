"""Prompts as canonical bytes: equal for equal prompts, and extended when a conversation continues.

There is one function per kind of body. Each takes parsed but unchecked JSON; tools are passed as
the bytes from `tools_bytes`, because a client sends the same ones with every turn. Bytes that UTF-8
never contains precede what they introduce (`marks`), so no content can imitate a border, and
whatever is appended to a conversation extends its bytes. Bookkeeping of answers is left out: null
and empty fields, ids and states of items, annotations, and marks for another engine's cache.

Read in this order:
    marks.py      the bytes that precede content, and what cannot be compared
    images.py     parts that are images
    sound.py      files of sound
    plain.py      prompts without roles: texts, token ids, pairs; images beside them
    parts.py      what the bodies share: tools and contents
    chat.py       chats, in OpenAI's form
    messages.py   Anthropic's messages
    responses.py  OpenAI's responses
    volatile.py   first lines that are left out, because they change with every call
"""

from pando_fleet.canonical.chat import chat_bytes
from pando_fleet.canonical.marks import PrefixError
from pando_fleet.canonical.messages import messages_bytes
from pando_fleet.canonical.parts import tools_bytes
from pando_fleet.canonical.plain import completion_bytes, pair_bytes, seen_bytes
from pando_fleet.canonical.responses import responses_bytes
from pando_fleet.canonical.sound import sound_bytes

__all__ = [
    "PrefixError",
    "chat_bytes",
    "completion_bytes",
    "messages_bytes",
    "pair_bytes",
    "responses_bytes",
    "seen_bytes",
    "sound_bytes",
    "tools_bytes",
]
