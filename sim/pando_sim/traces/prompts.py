"""Prompts of traces: bytes and tokens, computed on demand from a trace's information.

Most traces contain no text. Their prompts are invented so that they share exactly what the trace
says: tokens are a hash of a name (a block's id, a chunk's key, a request's number) and of their
position. A token is 4 bytes of the prompt unless the trace says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES, MAX_CHUNKS, chunk_keys, seed
from pando_sim.request import TOKEN_BYTES, Prompt
from pando_worker.memory.tree_node import common_prefix

SEED = seed("sim")

_BITS = 2**64 - 1

Ids = NDArray[np.uint64]
Tokenize = Callable[[bytes], NDArray[np.int32]]
"""The tokens of a prompt's canonical bytes, or of the first of these bytes."""


class TracePrompt(Prompt, Protocol):
    """A prompt that can be repeated as part of another conversation."""

    def path(self) -> Ids:
        """Names of its beginnings, from short to long; equal names mean equal beginnings."""
        ...

    def renewed(self, kept: int, again: int) -> "TracePrompt":
        """The same prompt with other words after the `kept` first names; equal prompts renewed with
        equal `again` stay equal."""
        ...


def mix(numbers: Ids) -> Ids:
    """Hashes each to 64 bits (the last steps of SplitMix64); different ones stay different."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)  # arrays overflow silently
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= numbers >> np.uint64(31)
    return numbers


def mix_one(number: int) -> np.uint64:
    """The same for one number, without an array's overhead."""
    number = (number + 0x9E3779B97F4A7C15) & _BITS
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _BITS
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _BITS
    return np.uint64(number ^ (number >> 31))


def tokens_of(sources: Ids | np.uint64, places: Ids) -> NDArray[np.int32]:
    """A token for each pair of a source, as a hash, and a position; none is negative."""
    return (mix(sources ^ places) >> np.uint64(33)).astype(np.int32)


def view_tokens(data: bytes) -> NDArray[np.int32]:
    """Makes a token of each 4 bytes, the last ones filled with zeros."""
    padded = data + bytes(-len(data) % TOKEN_BYTES)
    return np.frombuffer(padded, dtype="<i4").astype(np.int32) & np.int32(0x7FFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class BlockPrompt:
    """Whole blocks of `block_tokens`, each named by an id; the last one is cut to `num_tokens`."""

    ids: Ids
    num_tokens: int
    block_tokens: int

    @property
    def num_bytes(self) -> int:
        return self.num_tokens * TOKEN_BYTES

    def tokens(self) -> NDArray[np.int32]:
        places = np.arange(self.block_tokens, dtype=np.uint64)
        return tokens_of(mix(self.ids)[:, None], places).reshape(-1)[: self.num_tokens]

    def keys(self) -> bytes:
        """Chained over the ids if a block has whole chunks: equal wherever those of the bytes are,
        and many times as fast."""
        in_block, rest = divmod(self.block_tokens * TOKEN_BYTES, CHUNK_BYTES)
        if rest:
            return chunk_keys(self.tokens().tobytes(), SEED)
        name, names = b"", []
        for block in self.ids.tolist():
            name = xxh3_64_digest(name + block.to_bytes(KEY_BYTES, "big"), SEED)
            names.append(name)
        chunks = np.arange(min(self.num_bytes // CHUNK_BYTES, MAX_CHUNKS), dtype=np.uint64)
        within = unpacked(b"".join(names))[chunks // np.uint64(in_block)]
        return packed(mix(within ^ mix(chunks)))

    def path(self) -> Ids:
        """Excludes a last block that is cut, because no other prompt continues it."""
        return self.ids[: self.num_tokens // self.block_tokens]

    def renewed(self, kept: int, again: int) -> "BlockPrompt":
        ids = self.ids.copy()
        ids[kept:] = mix(ids[kept:] ^ mix_one(again))
        return BlockPrompt(ids, self.num_tokens, self.block_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class UniquePrompt:
    """A length only: shares nothing with a prompt of another `number`."""

    number: int
    num_tokens: int

    @property
    def num_bytes(self) -> int:
        return self.num_tokens * TOKEN_BYTES

    def tokens(self) -> NDArray[np.int32]:
        places = np.arange(self.num_tokens, dtype=np.uint64)
        return tokens_of(mix_one(self.number), places)

    def keys(self) -> bytes:
        return chunk_keys(self.tokens().tobytes(), SEED)

    def path(self) -> Ids:
        return np.zeros(0, dtype=np.uint64)

    def renewed(self, kept: int, again: int) -> "UniquePrompt":
        return UniquePrompt(renumbered(self.number, again), self.num_tokens)


class TextPrompt:
    """Canonical bytes, with the tokens from `tokenize`, computed once because that may be slow."""

    __slots__ = ("_tokenize", "_tokens", "data")

    def __init__(self, data: bytes, tokenize: Tokenize = view_tokens) -> None:
        self.data = data
        self._tokenize = tokenize
        self._tokens: NDArray[np.int32] | None = None

    @property
    def num_bytes(self) -> int:
        return len(self.data)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens())

    def tokens(self) -> NDArray[np.int32]:
        if self._tokens is None:
            self._tokens = self._tokenize(self.data)
        return self._tokens

    def keys(self) -> bytes:
        return chunk_keys(self.data, SEED)

    def path(self) -> Ids:
        return unpacked(self.keys())

    def tokens_within(self, chunks: int) -> int:
        """How many of the first tokens do not depend on what follows the first `chunks`."""
        first = self.data[: chunks * CHUNK_BYTES]
        if len(first) == len(self.data):
            return self.num_tokens
        return common_prefix(self._tokenize(first), self.tokens()) if first else 0

    def renewed(self, kept: int, again: int) -> "RenewedPrompt":
        return RenewedPrompt(self, kept, again)


class RenewedPrompt:
    """A prompt of which only the first `kept` chunks are the old ones."""

    __slots__ = ("_again", "_kept", "_old", "_tokens")

    def __init__(self, old: TextPrompt, kept: int, again: int) -> None:
        self._old = old
        self._kept = kept
        self._again = again
        self._tokens: NDArray[np.int32] | None = None

    @property
    def num_bytes(self) -> int:
        return self._old.num_bytes

    @property
    def num_tokens(self) -> int:
        return self._old.num_tokens

    def tokens(self) -> NDArray[np.int32]:
        if self._tokens is None:
            tokens = self._old.tokens().copy()
            kept = self._old.tokens_within(self._kept)
            tokens[kept:] = tokens_of(mix_one(self._again), tokens[kept:].astype(np.uint64))
            self._tokens = tokens
        return self._tokens

    def keys(self) -> bytes:
        return packed(renewed_keys(self._old.path(), self._kept, self._again))

    def path(self) -> Ids:
        return unpacked(self.keys())

    def renewed(self, kept: int, again: int) -> "RenewedPrompt":
        return RenewedPrompt(self._old, min(kept, self._kept), renumbered(self._again, again))


@dataclass(frozen=True, slots=True, eq=False)
class KeyedPrompt:
    """The keys of a prompt's chunks, and `num_bytes`; every `bytes_per_token` bytes are a token.

    `bytes_per_token` must be the same in all prompts of a trace, or equal chunks would have
    different tokens. The part after the last whole chunk is unique.
    """

    chunks: Ids
    num_bytes: int
    bytes_per_token: float
    number: int  # different in each prompt

    @property
    def num_tokens(self) -> int:
        return max(1, int(self.num_bytes / self.bytes_per_token))

    def tokens(self) -> NDArray[np.int32]:
        count = self.num_tokens
        places = np.arange(count, dtype=np.uint64)
        # A token belongs to the chunk in which it ends, so a held chunk holds all of its tokens.
        ends = ((places.astype(np.float64) + 1) * self.bytes_per_token - 1e-9).astype(np.int64)
        own = mix(np.append(self.chunks, mix_one(self.number)))
        return tokens_of(own[np.minimum(ends // CHUNK_BYTES, len(self.chunks))], places)

    def keys(self) -> bytes:
        return packed(self.chunks)

    def path(self) -> Ids:
        return self.chunks

    def renewed(self, kept: int, again: int) -> "KeyedPrompt":
        chunks = renewed_keys(self.chunks, kept, again)
        number = renumbered(self.number, again)
        return KeyedPrompt(chunks, self.num_bytes, self.bytes_per_token, number)


def renumbered(number: int, again: int) -> int:
    return int(mix_one(number ^ int(mix_one(again))))


def renewed_keys(keys: Ids, kept: int, again: int) -> Ids:
    """Replaces the keys after the first `kept`; equal ones stay equal."""
    keys = keys.copy()
    keys[kept:] = mix(keys[kept:] ^ mix_one(again))
    return keys


def unpacked(keys: bytes) -> Ids:
    return np.frombuffer(keys, dtype=f">u{KEY_BYTES}").astype(np.uint64)


def packed(keys: Ids) -> bytes:
    return keys.astype(f">u{KEY_BYTES}").tobytes()
