"""Fields that OpenAI's generating endpoints have in common, and that the router reads."""

from typing import Any

import msgspec


class Hints(msgspec.Struct, gc=False, kw_only=True):
    """Of a chat, completion or response: what it says of its answer, its turn, and who asks."""

    stream: Any = None
    temperature: Any = None
    seed: Any = None
    priority: Any = None
    user: Any = None
    prompt_cache_key: Any = None
    cache_salt: Any = None
