"""The format of a recording, for the router that writes it and the simulator that reads it.

Chunk keys are hashes without a secret, so anyone with the keys could test guesses of a text, above
all of short prompts. A recording therefore contains each key only as a hash with a secret that no
file contains. Equal beginnings of prompts stay equal, within a recording and among recordings with
the same secret, but guesses cannot be tested.
"""

from enum import StrEnum
from hashlib import blake2b, sha256

import msgspec

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES

VERSION = 1

HIDDEN_BYTES = 6
"""Length of a key in a recording; base64 makes it 8 characters. Among a hundred million chunks,
about ten pairs collide: single chunks, of prompts that otherwise differ."""


class Outcome(StrEnum):
    FINISHED = "finished"
    LEFT = "left"  # the client disconnected before the end
    REFUSED = "refused"  # for lack of room, or by a rate limit
    FAILED = "failed"
    INVALID = "invalid"  # the request was invalid, so nothing was computed


class Header(msgspec.Struct, kw_only=True):
    pando_recording: int = VERSION
    started: float  # Unix time, seconds
    chunk_bytes: int = CHUNK_BYTES
    hidden_bytes: int = HIDDEN_BYTES


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Times are in seconds. Records are in the order in which requests ended."""

    at: float  # Unix time at which the request had arrived, with its body
    oldest: float  # `at` of the oldest request still running when this one ended
    pool: str = ""  # empty if it was never placed
    model: str  # or the LoRA adapter
    base: str = ""  # the model of the adapter that `model` names
    prompt_bytes: int  # of the canonical prompt
    prompt_tokens: int  # as the replica reported; otherwise estimated from the bytes
    keys: bytes = b""  # of the prompt's full chunks, hidden; base64
    expected_tokens: int  # expected answer length, before there was an answer
    output_tokens: int = 0  # as the answer reported; otherwise the number of its events
    outcome: Outcome
    status: int
    first_s: float | None = None  # from `at` to the answer's first byte
    total_s: float  # from `at` to the answer's end
    matched_tokens: int = 0  # prompt tokens that placement expected cached
    cached_tokens: int | None = None  # prompt tokens that were cached, if the replica reported it
    tries: int = 0
    replica: str = ""  # the last one
    session: str = ""  # the session's name, hidden


class Disguise:
    """Hides keys and names behind a secret."""

    def __init__(self, secret: bytes) -> None:
        """`secret` must be hard to guess."""
        self._base = blake2b(key=sha256(secret).digest(), digest_size=HIDDEN_BYTES)

    def keys(self, keys: bytes) -> bytes:
        """Turns packed keys of KEY_BYTES into packed keys of HIDDEN_BYTES."""
        starts = range(0, len(keys), KEY_BYTES)
        return b"".join([self._hidden(keys[start : start + KEY_BYTES]) for start in starts])

    def name(self, name: str) -> str:
        return self._hidden(name.encode()).hex()

    def _hidden(self, data: bytes) -> bytes:
        # Copying a hash that has consumed the secret is cheaper than hashing the secret again.
        hidden = self._base.copy()
        hidden.update(data)
        return hidden.digest()
