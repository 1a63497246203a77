"""What a recording holds, for the router that writes it and the simulator that reads it.

Chunk keys are hashes without a secret: who has them can try out texts, short prompts above all. So
a recording has each key as a hash of it and of a secret that no file holds. Equal beginnings
of prompts stay equal, in one recording and in all of one secret, and nothing can be tried out.
"""

from enum import StrEnum
from hashlib import blake2b, sha256

import msgspec

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES

VERSION = 1

HIDDEN_BYTES = 6
"""Of a key in a recording, which base64 makes 8 characters of. Among a hundred million chunks some
ten pairs look alike: single chunks, of prompts that differ around them."""


class Outcome(StrEnum):
    FINISHED = "finished"
    LEFT = "left"  # the client did, before its end
    REFUSED = "refused"  # for want of room, or by a rate limit
    FAILED = "failed"
    INVALID = "invalid"  # the request was wrong: nothing was computed


class Header(msgspec.Struct, kw_only=True):
    pando_recording: int = VERSION
    started: float  # Unix time, seconds
    chunk_bytes: int = CHUNK_BYTES
    hidden_bytes: int = HIDDEN_BYTES


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Times are in seconds. Requests stand in the order in which they ended."""

    at: float  # Unix time at which the request was there, with its body
    oldest: float  # the same of the oldest request that had not ended when this one had
    pool: str = ""  # empty where it was never placed
    model: str
    prompt_bytes: int  # of the canonical prompt
    prompt_tokens: int  # of the prompt, as the replica said; else estimated from the bytes
    keys: bytes = b""  # of the prompt's whole chunks, hidden; base64
    expected_tokens: int  # tokens of an answer, before there was one
    output_tokens: int = 0  # as the answer said; else its events
    outcome: Outcome
    status: int
    first_s: float | None = None  # from `at` to the answer's first byte
    total_s: float  # to its end
    matched_tokens: int = 0  # prompt tokens that placement expected cached
    cached_tokens: int | None = None  # prompt tokens that were, where the replica said it
    tries: int = 0
    replica: str = ""  # the last one
    session: str = ""  # the session's name, hidden


class Disguise:
    """Hides keys and names behind a secret."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is hard to guess."""
        self._base = blake2b(key=sha256(secret).digest(), digest_size=HIDDEN_BYTES)

    def keys(self, keys: bytes) -> bytes:
        """Packed keys of KEY_BYTES as packed keys of HIDDEN_BYTES."""
        starts = range(0, len(keys), KEY_BYTES)
        return b"".join([self._hidden(keys[start : start + KEY_BYTES]) for start in starts])

    def name(self, name: str) -> str:
        return self._hidden(name.encode()).hex()

    def _hidden(self, data: bytes) -> bytes:
        # A copy of what has read the secret costs less than reading it again.
        hidden = self._base.copy()
        hidden.update(data)
        return hidden.digest()
