"""Which prefixes to compute again for a budget of tokens."""

from collections.abc import Iterable
from dataclasses import replace

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_router.warming.prefixes import HotPrefix

MAX_PREFIXES = 1024  # looked at for one mark: bounds the time that planning takes


def plan(hottest: Iterable[HotPrefix], tokens: int, bytes_per_token: float) -> list[HotPrefix]:
    """The hottest prefixes whose computation takes at most `tokens`, hottest first.

    A prefix costs what it has beyond the next shorter one, which is hotter, so taken already; the
    saving for each token spent is how often it is asked for, so the hottest come first. One that
    does not fit ends where the budget does. What another one extends is not listed: it is computed
    with it.
    """
    chunks_left = int(tokens * bytes_per_token / CHUNK_BYTES)
    chosen: dict[bytes, HotPrefix] = {}
    for seen, hot in enumerate(hottest):
        if seen == MAX_PREFIXES or chunks_left == 0:
            break
        own = len(hot.own_keys) // KEY_BYTES
        if own > chunks_left:
            excess = (own - chunks_left) * KEY_BYTES
            hot = replace(hot, keys=hot.keys[:-excess], own_keys=hot.own_keys[:-excess])
            own = chunks_left
        chosen.pop(hot.keys[: -len(hot.own_keys)], None)
        chosen[hot.keys] = hot
        chunks_left -= own
    return list(chosen.values())
