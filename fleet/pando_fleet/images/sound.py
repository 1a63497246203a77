"""How long a file of sound is, from its header, without decoding it.

WAV, FLAC, Ogg (Opus, Vorbis, FLAC), MP3, and the containers of `film.py`: MP4, M4A, WebM, Matroska.
Whatever a file says of itself may be wrong, so this is an estimate.

Sources: the RIFF specification; RFC 9639 (FLAC); RFC 3533 and 7845 (Ogg, Opus), the Vorbis I
specification; ISO/IEC 11172-3 and the Xing header (MP3).
"""

import struct

from pando_fleet.images.film import MAX_SECONDS, seconds_of
from pando_fleet.images.size import Read

_MOST_CHUNKS = 64  # of a WAV file, before its samples
_LAST_PAGE = 65_307  # bytes of the longest page of Ogg
_MP3_KBIT = {
    # of versions 1, 2 and 2.5, by the header's index; layer III only
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
}
_MP3_RATE = {3: (44_100, 48_000, 32_000, 0), 2: (22_050, 24_000, 16_000, 0)}

UNKNOWN_BYTES_PER_S = 8000
"""Of a file whose header says too little: 64 kbit/s."""


def sound_seconds(read: Read, size: int) -> float:
    """Of a file of `size` bytes; a guess from its size if its header says too little."""
    head = read(0, 12)
    found = 0.0
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        found = _wav(read, size)
    elif head[:4] == b"fLaC":
        found = _flac(read)
    elif head[:4] == b"OggS":
        found = _ogg(read, size)
    elif head[4:8] == b"ftyp" or head[:4] == b"\x1a\x45\xdf\xa3":
        found = seconds_of(read)
    elif head[:3] == b"ID3" or head[:1] == b"\xff":
        found = _mp3(read, size)
    if not 0 < found <= MAX_SECONDS:
        return min(MAX_SECONDS, size / UNKNOWN_BYTES_PER_S)
    return found


def _wav(read: Read, size: int) -> float:
    """Samples behind the header, at the rate of bytes that it says."""
    place, rate = 12, 0
    for _ in range(_MOST_CHUNKS):
        chunk = read(place, place + 8)
        if len(chunk) < 8:
            return 0.0
        kind, length = chunk[:4], int.from_bytes(chunk[4:], "little")
        if kind == b"fmt ":
            rate = int.from_bytes(read(place + 16, place + 20), "little")
        elif kind == b"data":
            return min(length, size - place - 8) / rate if rate else 0.0
        place += 8 + length + length % 2
    return 0.0


def _flac(read: Read) -> float:
    """Of STREAMINFO, the first block."""
    info = read(18, 26)
    if len(info) < 8:
        return 0.0
    bits = int.from_bytes(info, "big")  # rate 20, channels 3, bits 5, samples 36
    rate, samples = bits >> 44, bits & ((1 << 36) - 1)
    return samples / rate if rate else 0.0


def _ogg(read: Read, size: int) -> float:
    """The position of the last page, at the rate of the first one's codec."""
    first = read(0, 128)
    packet = first[27 + first[26] :] if len(first) > 27 else b""
    if packet[:8] == b"OpusHead":
        rate = 48_000
    elif packet[:7] == b"\x01vorbis":
        rate = int.from_bytes(packet[12:16], "little")
    elif packet[:5] == b"\x7fFLAC":
        rate = int.from_bytes(packet[27:30], "big") >> 4
    else:
        return 0.0
    end = read(max(0, size - _LAST_PAGE), size)
    page = end[end.rfind(b"OggS") :]
    if len(page) < 14 or not rate:
        return 0.0
    samples: int = struct.unpack("<q", page[6:14])[0]
    return samples / rate


def _mp3(read: Read, size: int) -> float:
    """The number of frames in the Xing or Info header, else the first frame's bit rate."""
    start, tag = 0, read(0, 10)
    if tag[:3] == b"ID3" and len(tag) == 10:
        start = 10 + sum(byte << shift for byte, shift in zip(tag[6:], (21, 14, 7, 0), strict=True))
    frame = read(start, start + 200)
    if len(frame) < 4 or frame[0] != 0xFF or frame[1] & 0xE6 != 0xE2:  # no mark, or no layer III
        return 0.0
    version = frame[1] >> 3 & 3  # 3: MPEG 1, 2: MPEG 2, 0: MPEG 2.5
    table = 3 if version == 3 else 2
    kbit = _MP3_KBIT[table][frame[2] >> 4]
    rate = _MP3_RATE[table][frame[2] >> 2 & 3] // (2 if version == 0 else 1)
    if not rate or not kbit:
        return 0.0
    for mark in (b"Xing", b"Info"):
        place = frame.find(mark)
        if place > 0 and frame[place + 7 : place + 8] and frame[place + 7] & 1:
            frames = int.from_bytes(frame[place + 8 : place + 12], "big")
            return frames * (1152 if version == 3 else 576) / rate
    return (size - start) / (kbit * 125)
