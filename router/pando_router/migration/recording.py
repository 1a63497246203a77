"""Keeps a stream's bytes as sent to the client, until the stream ends well.

Only whole events are sent, so that a replica that dies within one leaves no partial event at the
client. Finding their ends costs one search per chunk.
"""

from pando_fleet.http.server.byte_budget import ByteBudget


class Recording:
    """`whole_events` of each chunk, `rest` at the end, `close` in any case."""

    def __init__(self, limit: int, memory: ByteBudget) -> None:
        """`limit` is in bytes. A longer stream is relayed without being kept, and so is one for
        which `memory`, shared by all recordings, has no room."""
        self._limit = limit
        self._memory = memory
        self._events: list[bytes] = []
        self._size = 0  # of the events and the rest
        self.held_back = b""  # the start of an event whose end has not come yet
        self.forgotten = ""  # why bytes are no longer kept; empty while they are

    def whole_events(self, chunk: bytes) -> bytes:
        """The bytes to send now: the chunk without an incomplete last event."""
        if self.forgotten:
            return chunk
        size = len(chunk)
        if self._size + size > self._limit:
            return self.forget("the stream is longer than migrate_stream_bytes") + chunk
        if not self._memory.take(size):
            return self.forget("migrate_memory_bytes is used up by other streams") + chunk
        self._size += size
        if self.held_back:
            chunk = self.held_back + chunk
        end = end_of_events(chunk)
        events = chunk if end == len(chunk) else chunk[:end]
        if events:
            self._events.append(events)
        self.held_back = chunk[end:]
        return events

    def forget(self, why: str) -> bytes:
        """Stops keeping bytes; returns the held-back start of an event."""
        rest = self.rest()
        self.close()
        self.forgotten = why
        return rest

    def rest(self) -> bytes:
        """The bytes after the last whole event."""
        rest, self.held_back = self.held_back, b""
        return rest

    def events(self) -> bytes:
        """All bytes sent to the client; drops the start of a further event."""
        self.held_back = b""
        return b"".join(self._events)

    def close(self) -> None:
        """Returns the memory."""
        self._memory.give_back(self._size)
        self._size = 0
        self._events.clear()
        self.forgotten = "the stream is over"


def end_of_events(data: bytes) -> int:
    """The end of the last whole event, with LF or CRLF line ends; 0 if there is none."""
    end = data.rfind(b"\n\n")
    if end >= 0:
        return end + 2
    return data.rfind(b"\r\n\r\n") + 4 if b"\r\n\r\n" in data else 0
