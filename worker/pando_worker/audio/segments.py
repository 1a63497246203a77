"""Windows of a file that follow the time stamps which the model predicts.

The sequential algorithm of Radford et al., "Robust Speech Recognition via Large-Scale Weak
Supervision" (2022), section 3.8, as transformers has it (`_retrieve_segment` of its generation): a
window's tokens are cut behind pairs of time stamps, and the next window begins at the last pair.
Frames are of the features (0.01 s); a time stamp counts 0.02 s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_STAMP_S = 0.02
_STRIDE = 2  # frames of a time stamp


@dataclass(frozen=True, slots=True)
class Segment:
    """
    Attributes:
        start, end: in seconds from the beginning of the file
        tokens: with their time stamps
        first: index of the first one among the tokens of its window
    """

    start: float
    end: float
    tokens: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Cut:
    """
    Attributes:
        advance: frames from this window's beginning to the next one's
    """

    segments: tuple[Segment, ...]
    advance: int


def cut(tokens: Sequence[int], start: int, count: int, first_timestamp: int) -> Cut:
    """
    Args:
        tokens: that the model predicted for a window, without the end token
        start: of the window, in frames
        count: frames of it that are not padding
        first_timestamp: the token of 0.00 s
    """
    stamps = [token - first_timestamp if token >= first_timestamp else None for token in tokens]
    offset_s = start * _STAMP_S / _STRIDE
    ends = [
        at + 1
        for at in range(len(stamps) - 1)
        if stamps[at] is not None and stamps[at + 1] is not None
    ]
    if not ends:
        last = _last_stamp(stamps, count)
        whole = Segment(offset_s, offset_s + last * _STAMP_S, tuple(tokens), 0)
        return Cut((whole,), count)
    # No speech follows a single time stamp at the end. Else what follows the last pair is
    # unfinished, and the next window begins there.
    ends_single = stamps[-2:-1] == [None] and stamps[-1] is not None
    if ends_single:
        ends.append(len(tokens))
    else:
        ends[-1] += 1  # with the second of the last pair
    segments, begin = [], 0
    for end in ends:
        is_last = end == ends[-1]
        part = tokens[begin:end]
        stop = part[-1 if not is_last or ends_single else -2]
        segments.append(
            Segment(
                offset_s + (part[0] - first_timestamp) * _STAMP_S,
                offset_s + (stop - first_timestamp) * _STAMP_S,
                tuple(part),
                begin,
            )
        )
        begin = end
    if ends_single:
        return Cut(tuple(segments), count)
    return Cut(tuple(segments), (tokens[begin - 2] - first_timestamp) * _STRIDE)


def _last_stamp(stamps: Sequence[int | None], count: int) -> int:
    """Where a window ends whose tokens have no pair: at its last time stamp, or at its end."""
    found = [stamp for stamp in stamps if stamp is not None]
    return found[-1] if found and found[-1] else count // _STRIDE
