"""Chooses the prefixes to compute again within a budget of tokens."""

from collections.abc import Iterable
from dataclasses import replace

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_router.warming.prefixes import HotPrefix

MAX_PREFIXES = 1024  # prefixes examined for one mark; bounds the planning time


def plan(hottest: Iterable[HotPrefix], tokens: int, bytes_per_token: float) -> list[HotPrefix]:
    """The hottest prefixes whose computation takes at most `tokens`, hottest first.

    A prefix costs only the tokens beyond the next shorter prefix: that one is hotter, so it is
    already chosen. Each token saves as much as its prefix is requested, so the hottest come first.
    A prefix that exceeds the budget is cut to fit. A prefix that another chosen one extends is not
    listed, because computing the longer one computes both.
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
