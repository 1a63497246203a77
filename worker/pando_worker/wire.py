"""Commands as frames of one ZeroMQ message: the command itself in MessagePack, then the bytes of
its arrays (of images, or of an encoder's input), which are hundreds of MiB for a video. These are
copied neither here nor by pyzmq: ZeroMQ's own thread reads them from where they are, and the
scheduler computes with the memory in which it received them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import zmq

from pando_worker.messages import Command, Raw

_FRAME = 1  # the type of MessagePack's extension; its data is the number of a frame


class CommandSender:
    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._behind: list[memoryview] = []
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._frame)

    def send(self, command: Command) -> None:
        """Never waits. Arrays must not change until the scheduler has them.

        Raises:
            zmq.Again: the socket's queue is full.
        """
        first = self._encoder.encode(command)
        behind, self._behind = self._behind, []
        if behind:
            self._socket.send_multipart([first, *behind], zmq.NOBLOCK, copy=False)
        else:
            self._socket.send(first, zmq.NOBLOCK)

    def _frame(self, value: Any) -> msgspec.msgpack.Ext:
        if not isinstance(value, Raw):
            raise TypeError(f"a command has a {type(value).__name__}")
        self._behind.append(value.buffer)
        return msgspec.msgpack.Ext(_FRAME, len(self._behind).to_bytes(4, "little"))


class CommandReceiver:
    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._frames: Sequence[zmq.Frame] = ()
        self._decoder = msgspec.msgpack.Decoder(Command, ext_hook=self._raw)

    def receive(self) -> Command:
        """Waits for one.

        Raises:
            msgspec.DecodeError: it is none.
        """
        self._frames = self._socket.recv_multipart(copy=False)
        try:
            command: Command = self._decoder.decode(self._frames[0].buffer)
            return command
        finally:
            self._frames = ()

    def _raw(self, code: int, data: memoryview) -> Raw:
        if code != _FRAME:
            raise ValueError(f"an extension of type {code}")
        return Raw(self._frames[int.from_bytes(data, "little")].buffer)
