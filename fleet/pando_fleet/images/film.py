"""Size, length and number of frames from the header of an MP4, MOV, WebM or Matroska file, without
decoding it.

Both kinds of container are boxes in boxes, each with its length in front, so whatever is not looked
for is skipped without reading it: at most `MAX_BOXES` heads of a few bytes are read, wherever in
the file they are, and no table.

Sources: ISO/IEC 14496-12 (mvhd, mdhd, hdlr, stsd, stsz, mehd); RFC 8794 (EBML) and RFC 9559
(Matroska).
"""

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pando_fleet.images.size import Read, Size

MAX_BOXES = 512
"""Read of a file; one with more of them before its video's length is of unknown length."""

MAX_SECONDS = 24 * 3600
"""A file that claims to be longer is of unknown length."""

_RATE = 30  # frames a second, of a file that does not say how many it has


class Film(NamedTuple):
    size: Size  # as stored, in pixels
    seconds: float
    frames: int


UNKNOWN_FILM = Film(Size(1280, 720), 10.0, 10 * _RATE)
"""What a video is taken for whose header says too little, such as one behind an http: URL."""


class _Box(NamedTuple):
    kind: bytes | int
    start: int  # of its contents
    end: int


def film_of(read: Read) -> Film | None:
    """What the header says of the first video in a file; None if that is not to be found. Whatever
    a file says of itself may be wrong."""
    head = read(0, 8)
    if head[4:8] == b"ftyp":
        found = _Mp4(read).film()
    elif head[:4] == b"\x1a\x45\xdf\xa3":
        found = _Matroska(read).film()
    else:
        return None
    if found is None or not 0 < found.seconds <= MAX_SECONDS or not all(found.size):
        return None
    return found if found.frames > 0 else found._replace(frames=_frames(found.seconds, _RATE))


def seconds_of(read: Read) -> float:
    """The length of a file in one of these containers, whatever it holds; 0 if its header does not
    say it."""
    if read(4, 8) == b"ftyp":
        return _Mp4(read).seconds()
    return _Matroska(read).seconds()


def _frames(seconds: float, rate: float) -> int:
    return max(1, round(min(seconds, MAX_SECONDS) * rate))


class _Boxes:
    """Heads of boxes, as many as are left of `MAX_BOXES`."""

    def __init__(self, read: Read) -> None:
        self._read, self._left = read, MAX_BOXES

    def _bytes(self, start: int, count: int) -> bytes:
        """Filled up with zeros where the file ends."""
        return self._read(start, start + count).ljust(count, b"\0")

    def _inside(self, box: _Box) -> Iterator[_Box]:
        place = box.start
        while place < box.end and self._left > 0:
            self._left -= 1
            if (found := self._head(place, box.end)) is None or found.end <= place:
                return
            yield found
            place = found.end

    def _head(self, place: int, end: int) -> _Box | None:
        raise NotImplementedError


class _Mp4(_Boxes):
    def seconds(self) -> float:
        movie = self._movie()
        if movie is None:
            return 0.0
        head = next(self._at(movie, b"mvhd"), None)
        return (self._seconds(head) if head else 0.0) or self._of_fragments(movie)

    def film(self) -> Film | None:
        movie = self._movie()
        if movie is None:
            return None
        seconds = 0.0
        for box in self._inside(movie):
            if box.kind == b"mvhd":
                seconds = self._seconds(box)
            elif box.kind == b"trak" and (found := self._track(box)):
                if not 0 < found.seconds <= MAX_SECONDS:
                    found = found._replace(seconds=seconds)
                if found.seconds > 0:
                    return found
                # In fragments, the movie's length may be behind its tracks.
                seconds = self._of_fragments(movie)
                return found._replace(seconds=seconds)
        return None

    def _movie(self) -> _Box | None:
        whole = _Box(b"", 0, 1 << 62)
        return next(self._at(whole, b"moov"), None)

    def _head(self, place: int, end: int) -> _Box | None:
        head = self._read(place, place + 16)
        if len(head) < 8:
            return None
        length, kind, start = int.from_bytes(head[:4], "big"), head[4:8], place + 8
        if length == 1:
            length, start = int.from_bytes(head[8:16], "big"), place + 16
        elif length == 0:
            length = end - place
        return _Box(kind, start, min(end, place + length)) if place + length >= start else None

    def _seconds(self, box: _Box) -> float:
        """Of `mvhd` or `mdhd`."""
        head = self._bytes(box.start, 32)
        if head[0]:
            scale, length = struct.unpack(">IQ", head[20:32])
        else:
            scale, length = struct.unpack(">II", head[12:20])
        return length / scale if scale else 0.0

    def _track(self, track: _Box) -> Film | None:
        """A track that is a video. Its length is 0 if it has none of its own."""
        seconds, is_video = 0.0, False
        size, frames = Size(0, 0), 0
        for media in self._at(track, b"mdia"):
            for box in self._inside(media):
                if box.kind == b"mdhd":
                    seconds = self._seconds(box)
                elif box.kind == b"hdlr":
                    is_video = self._bytes(box.start + 8, 4) == b"vide"
                elif box.kind == b"minf" and is_video:
                    size, frames = self._samples(box)
        return Film(size, seconds, frames) if is_video else None

    def _samples(self, information: _Box) -> tuple[Size, int]:
        size, frames = Size(0, 0), 0
        for table in self._at(information, b"stbl"):
            for box in self._inside(table):
                if box.kind == b"stsd":
                    size = Size(*struct.unpack(">HH", self._bytes(box.start + 40, 4)))
                elif box.kind in (b"stsz", b"stz2"):
                    frames = int.from_bytes(self._bytes(box.start + 8, 4), "big")
        return size, frames

    def _of_fragments(self, movie: _Box) -> float:
        scale, length = 0, 0
        for box in self._inside(movie):
            if box.kind == b"mvhd":
                at = 20 if self._bytes(box.start, 1)[0] else 12
                scale = int.from_bytes(self._bytes(box.start + at, 4), "big")
            elif box.kind == b"mvex":
                for each in self._at(box, b"mehd"):
                    head = self._bytes(each.start, 12)
                    length = int.from_bytes(head[4:12] if head[0] else head[4:8], "big")
        return length / scale if scale else 0.0

    def _at(self, box: _Box, kind: bytes) -> Iterator[_Box]:
        return (each for each in self._inside(box) if each.kind == kind)


_SEGMENT, _INFO, _TRACKS, _TRACK, _VIDEO = 0x18538067, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0
_CLUSTER = 0x1F43B675
_SCALE, _DURATION, _TYPE, _FRAME_NS = 0x2AD7B1, 0x4489, 0x83, 0x23E383
_WIDTH, _HEIGHT = 0xB0, 0xBA


class _Matroska(_Boxes):
    def seconds(self) -> float:
        segment = self._segment()
        for box in self._inside(segment) if segment else ():
            if box.kind == _INFO:
                return self._length(box)
        return 0.0

    def film(self) -> Film | None:
        segment = self._segment()
        seconds, found = 0.0, None
        for box in self._inside(segment) if segment else ():
            if box.kind == _INFO:
                seconds = self._length(box)
            elif box.kind == _TRACKS:
                tracks = (self._track(each) for each in self._inside(box) if each.kind == _TRACK)
                found = next(filter(None, tracks), None)
            elif box.kind == _CLUSTER:  # the frames themselves
                break
            if seconds and found:
                size, rate = found
                return Film(size, seconds, _frames(seconds, rate))
        return None

    def _segment(self) -> _Box | None:
        whole = _Box(0, 0, 1 << 62)
        return next((box for box in self._inside(whole) if box.kind == _SEGMENT), None)

    def _head(self, place: int, end: int) -> _Box | None:
        head = self._read(place, place + 12)
        if not head or not head[0] >> 4:
            return None
        width = 9 - head[0].bit_length()  # 1 to 4 bytes, with the bit that says so
        kind, rest = int.from_bytes(head[:width], "big"), head[width:]
        if not rest or not rest[0]:
            return None
        count = 9 - rest[0].bit_length()
        length = int.from_bytes(rest[:count], "big") & ((1 << 7 * count) - 1)
        start = place + width + count
        if length == (1 << 7 * count) - 1:  # unknown: up to the end
            return _Box(kind, start, end)
        return _Box(kind, start, min(end, start + length))

    def _number(self, box: _Box) -> int:
        return int.from_bytes(self._bytes(box.start, min(8, box.end - box.start)), "big")

    def _length(self, information: _Box) -> float:
        scale, length = 1_000_000, 0.0  # nanoseconds
        for box in self._inside(information):
            if box.kind == _SCALE:
                scale = self._number(box)
            elif box.kind == _DURATION:
                form, width = (">d", 8) if box.end - box.start == 8 else (">f", 4)
                (length,) = struct.unpack(form, self._bytes(box.start, width))
        seconds = length * scale / 1e9
        return seconds if math.isfinite(seconds) else 0.0

    def _track(self, track: _Box) -> tuple[Size, float] | None:
        """Size and rate of a track that is a video."""
        is_video, size, rate = False, Size(0, 0), float(_RATE)
        for box in self._inside(track):
            if box.kind == _TYPE:
                is_video = self._number(box) == 1
            elif box.kind == _FRAME_NS and (time := self._number(box)) > 1e6:
                rate = 1e9 / time
            elif box.kind == _VIDEO:
                sides = {each.kind: each for each in self._inside(box)}
                if _WIDTH in sides and _HEIGHT in sides:
                    size = Size(self._number(sides[_WIDTH]), self._number(sides[_HEIGHT]))
        return (size, rate) if is_video else None
