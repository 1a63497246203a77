"""Segments as subtitles: SRT, and WebVTT (W3C)."""

from collections.abc import Iterable
from typing import Protocol


class Timed(Protocol):
    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...

    @property
    def text(self) -> str: ...


def srt(segments: Iterable[Timed]) -> str:
    cues = [
        f"{number}\n{_time(one.start, ',')} --> {_time(one.end, ',')}\n{_line(one.text)}\n"
        for number, one in enumerate(segments, 1)
    ]
    return "\n".join(cues)


def vtt(segments: Iterable[Timed]) -> str:
    cues = [
        f"{_time(one.start, '.')} --> {_time(one.end, '.')}\n{_escaped(_line(one.text))}\n"
        for one in segments
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _time(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}{point}{milliseconds:03}"


def _line(text: str) -> str:
    """One line, in which no arrow begins another cue."""
    return " ".join(text.split()).replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
