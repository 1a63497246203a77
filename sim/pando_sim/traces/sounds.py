"""Files of sound of a trace's requests: `"audio_seconds": [[seconds, hash], ...]`.

A trace has no sound. Equal hashes mean equal files, and a model's rule makes tokens of seconds. In
the prompt's bytes a file stands as in a router's: a digest, followed by the room of its tokens. All
files stand in front of the prompt, because a decoder's cached tokens depend on what it heard.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from pando_fleet.canonical.sound import sound_bytes
from pando_fleet.images.in_prefix import counted, with_room
from pando_fleet.images.rule import ImageRule

Seconds = Annotated[float, msgspec.Meta(gt=0, le=2**31)]
TraceSound = tuple[Seconds, str | int]
"""Seconds, and what tells it from other files."""


class SoundsError(ValueError):
    """Nothing says how many tokens the files have."""


def heard_first(sounds: Sequence[TraceSound], rule: ImageRule | None) -> bytes:
    """The bytes of files at the beginning of a prompt, with the room of their tokens.

    Raises SoundsError if there are files, but no rule gives them tokens.
    """
    if sounds and not (rule and rule.sounds and rule.sounds.tokens):
        raise SoundsError(
            "has audio_seconds, and no --image-rule with `sounds` says how many tokens they have"
        )
    data, found = b"", []
    for seconds, name in sounds:
        digest, sound = sound_bytes(f"trace:{name}".encode())
        data += digest
        found.append(sound._replace(end=len(data), seconds=seconds))
    return with_room(data, counted(found, rule)) if rule else data
