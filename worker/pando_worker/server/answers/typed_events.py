"""What the events of Anthropic's and OpenAI's typed streams have in common: the tag of each is its
`type`, and if a router asked for them (`protocol/resume.py`), token ids."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType, structs

from pando_worker.server.text.reader import Delta


class TypedEvent(msgspec.Struct, frozen=True, tag_field="type", kw_only=True):
    token_ids: list[int] | UnsetType = UNSET  # of all tokens since the last event that had some


class TokenReport:
    """Adds token ids to a stream's events, if `wanted`."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._unsent: list[int] = []

    def on(self, events: Sequence[TypedEvent], delta: Delta) -> list[object]:
        """The events of a delta, the last of them with the ids."""
        if not self._wanted:
            return [*events]
        self._unsent += delta.token_ids
        if not events:
            return []
        ids, self._unsent = self._unsent, []
        return [*events[:-1], structs.replace(events[-1], token_ids=ids)]
