"""A stream's bytes as the client got them, kept until the stream has ended well.

Only whole events go to the client, so that a replica that dies within one leaves no half of it
there. Finding their ends is one search a chunk; nothing is parsed.
"""


class Memory:
    """Bytes that all recordings of a router may hold together."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        self._left += size


class Recording:
    """`whole_events` of each chunk, `rest` at the end, `close` in any case."""

    def __init__(self, limit: int, memory: Memory) -> None:
        """`limit` is in bytes; a longer stream passes through and is forgotten."""
        self._limit = limit
        self._memory = memory
        self._events: list[bytes] = []
        self._size = 0
        self._rest = b""
        self.is_complete = True  # nothing was forgotten

    def whole_events(self, chunk: bytes) -> bytes:
        """What may go to the client now: the chunk, without an event that it begins only."""
        if not self.is_complete:
            return chunk
        if self._rest:
            chunk = self._rest + chunk
        end = end_of_events(chunk)
        events = chunk if end == len(chunk) else chunk[:end]
        if not self._keep(events, len(chunk)):
            self._rest = b""
            return chunk
        self._rest = chunk[end:]
        return events

    def rest(self) -> bytes:
        """What the stream ended with after its last whole event."""
        rest, self._rest = self._rest, b""
        return rest

    def events(self) -> bytes:
        """All that went to the client; what had come of a further event is dropped."""
        self._rest = b""
        return b"".join(self._events)

    def close(self) -> None:
        """Gives the memory back."""
        self._memory.give_back(self._size)
        self._size = 0
        self._events.clear()
        self.is_complete = False

    def _keep(self, events: bytes, with_rest: int) -> bool:
        if self._size + with_rest > self._limit or not self._memory.take(len(events)):
            self.close()
            return False
        if events:
            self._size += len(events)
            self._events.append(events)
        return True


def end_of_events(data: bytes) -> int:
    """Where the last whole event ends, whichever line ends the engine writes; 0 for none."""
    end = data.rfind(b"\n\n")
    if end >= 0:
        return end + 2
    return data.rfind(b"\r\n\r\n") + 4 if b"\r\n\r\n" in data else 0
