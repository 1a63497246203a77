"""A stream's bytes as the client got them, kept until the stream has ended well.

Only whole events go to the client, so that a replica that dies within one leaves no half of it
there. Finding their ends is one search a chunk.
"""

from pando_router.http.byte_budget import ByteBudget


class Recording:
    """`whole_events` of each chunk, `rest` at the end, `close` in any case."""

    def __init__(self, limit: int, memory: ByteBudget) -> None:
        """`limit` is in bytes; a longer stream passes through and is forgotten, as is one for
        which `memory`, that of all recordings, has no room."""
        self._limit = limit
        self._memory = memory
        self._events: list[bytes] = []
        self._size = 0  # of the events and the rest
        self._rest = b""
        self.forgotten = ""  # why; empty while everything is here

    def whole_events(self, chunk: bytes) -> bytes:
        """What may go to the client now: the chunk, without an event that it begins only."""
        if self.forgotten:
            return chunk
        size = len(chunk)
        if self._size + size > self._limit:
            return self.forget("the stream was longer than what is kept of one") + chunk
        if not self._memory.take(size):
            return self.forget("there was no memory left to keep the stream in") + chunk
        self._size += size
        if self._rest:
            chunk = self._rest + chunk
        end = end_of_events(chunk)
        events = chunk if end == len(chunk) else chunk[:end]
        if events:
            self._events.append(events)
        self._rest = chunk[end:]
        return events

    def forget(self, why: str) -> bytes:
        """Keeps nothing more; returns what was held back of an event."""
        rest = self.rest()
        self.close()
        self.forgotten = why
        return rest

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
        self.forgotten = "it is over"


def end_of_events(data: bytes) -> int:
    """Where the last whole event ends, whichever line ends the engine writes; 0 for none."""
    end = data.rfind(b"\n\n")
    if end >= 0:
        return end + 2
    return data.rfind(b"\r\n\r\n") + 4 if b"\r\n\r\n" in data else 0
