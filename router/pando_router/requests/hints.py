"""Fields that endpoints have in common, and that the router reads."""

from typing import Any

import msgspec


class Asker(msgspec.Struct, gc=False, kw_only=True):
    """Who asks, how urgent it is, and in which name space."""

    priority: Any = None
    user: Any = None
    cache_salt: Any = None


class Hints(Asker, gc=False, kw_only=True):
    """Of a chat, completion or response, OpenAI's: the same, and how it is answered."""

    stream: Any = None
    temperature: Any = None
    seed: Any = None
    prompt_cache_key: Any = None
