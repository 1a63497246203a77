"""Which frames of a video a model sees, and how: as transformers' own processors recorded it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import numpy as np
import pytest

from pando_fleet.images.film import Film, film_of
from pando_fleet.images.film_rule import FilmRule
from pando_fleet.images.size import Size
from pando_worker.models.kinds.text_part import VideoForm
from pando_worker.vision.errors import ImageError
from pando_worker.vision.video_files import Frame, Video, reading
from pando_worker.vision.videos import VideoProcessor, read_fields
from tests.worker.vision.asked_films import LIMITS
from tests.worker.vision.films import film
from tests.worker.vision.qwen import VIDEO, tokenizer_with
from tests.worker.vision.record_videos import COUNTS, FIELDS, FILE, RATES, SHOTS, shot

TOKENIZER = tokenizer_with()
PER_SECOND = 3.0
Times = Literal["order", "seconds", "text"]


@dataclass(frozen=True)
class Decoded:
    """A video whose frames are known."""

    count: int
    rate: float
    all_frames: Frame

    def frames(self, wanted: Sequence[int]) -> Iterator[Frame]:
        return iter(self.all_frames[list(wanted)])


def processor(tmp_path: Path, times: Times, **fields: Any) -> VideoProcessor:
    form = VideoForm(cast(int, TOKENIZER.convert_tokens_to_ids(VIDEO)), times, PER_SECOND)
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(fields))
    return VideoProcessor(form, read_fields(tmp_path, form), TOKENIZER)


def video(number: int) -> Video:
    count, rate, *_ = SHOTS[number]
    return cast(Video, Decoded(count, rate, shot(number)))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    with np.load(FILE) as found:
        return dict(found)


@pytest.mark.parametrize("times", ["seconds", "text"])
@pytest.mark.parametrize("number", range(len(SHOTS)))
def test_pixels_tokens_and_times_are_those_of_transformers(
    tmp_path: Path, recorded: dict[str, Any], times: Times, number: int
) -> None:
    ours = processor(tmp_path, times, **{**FIELDS, **SHOTS[number][4]})
    frames = ours.process(video(number), 14)
    count, rows, columns = recorded[f"{times} {number} grid"].tolist()
    assert [frame.grid for frame in frames] == [(1, rows // 2, columns // 2)] * count
    start, end = TOKENIZER.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    ids = [start, *(token for frame in frames for token in frame.token_ids), end]
    assert ids == recorded[f"{times} {number} ids"].tolist()

    mean, std = (
        255 * np.repeat(np.array(part, np.float32), 2 * 4 * 4)
        for part in (ours._fields.image_mean, ours._fields.image_std)
    )
    pixels = np.concatenate([frame.arrays["pixel_values"] for frame in frames]) * std + mean
    apart = np.abs(pixels - recorded[f"{times} {number} pixels"])
    assert apart.max() < 1.01  # torch's vectors and plain code may round differently
    assert (apart > 0.01).mean() < 0.01

    if times == "seconds":
        step = recorded[f"{times} {number} step"][0] * np.float32(PER_SECOND)
        expected = (np.arange(count, dtype=np.float32) * step).astype(int).tolist()
        assert [frame.time for frame in frames] == expected
        assert [frame.is_continued for frame in frames] == [True] * (count - 1) + [False]
    else:
        assert not any(frame.time or frame.is_continued for frame in frames)


@pytest.mark.parametrize("times", ["seconds", "text"])
def test_frames_are_sampled_as_transformers_does(
    tmp_path: Path, recorded: dict[str, Any], times: Times
) -> None:
    ours = processor(tmp_path, times)
    for count in COUNTS:
        for rate in RATES:
            assert ours.sample(count, rate) == recorded[f"{times} {count} {rate}"].tolist()


@pytest.mark.parametrize("times", ["order", "seconds", "text"])
@pytest.mark.parametrize("number", range(len(SHOTS)))
def test_its_rule_counts_the_tokens_that_it_makes(
    tmp_path: Path, times: Times, number: int
) -> None:
    """As routers do. A time in words may have some tokens more or less than a usual one."""
    ours = processor(tmp_path, times, **{**FIELDS, **SHOTS[number][4]})
    count, rate, *_ = SHOTS[number]
    height, width, _ = shot(number)[0].shape
    rule = msgspec.json.decode(msgspec.json.encode(ours.rule), type=FilmRule)
    frames = ours.process(video(number), 14)
    expected = sum(len(frame.token_ids) for frame in frames)
    found = rule.tokens_of(Film(Size(width, height), count / rate, count))
    assert abs(found - expected) <= (2 * len(frames) if times == "text" else 0)


@pytest.mark.parametrize(("form", "codec"), [("mp4", "libx264"), ("webm", "libvpx")])
@pytest.mark.parametrize("times", ["seconds", "text"])
def test_a_files_header_suffices_to_count_its_tokens(
    tmp_path: Path, times: Times, form: str, codec: str
) -> None:
    """Within a frame, since headers round a video's length."""
    ours = processor(tmp_path, times, **FIELDS)
    for count, rate, size in ((24, 8, (64, 48)), (50, 25, (48, 72)), (90, 10, (160, 120))):
        data = film(frames=count, rate=rate, size=size, form=form, codec=codec)
        with reading(data, LIMITS, lambda: False) as found:
            frames = ours.process(found, 100)
        header = film_of(lambda start, end, data=data: data[start:end])  # type: ignore[misc]
        assert header is not None
        each = max(len(frame.token_ids) for frame in frames)
        expected = sum(len(frame.token_ids) for frame in frames)
        assert abs(ours.rule.tokens_of(header) - expected) <= each + 2 * len(frames)


def test_the_digest_has_the_time_where_positions_have_it(tmp_path: Path) -> None:
    """Equal pictures at other positions have other keys and values in the decoder."""
    still = np.repeat(shot(0)[:1], 12, axis=0)

    def digests(times: Times, rate: float) -> list[bytes]:
        made = processor(tmp_path, times, **FIELDS)
        return [frame.digest for frame in made.process(cast(Video, Decoded(12, rate, still)), 14)]

    fast, slow = digests("seconds", 2.0), digests("seconds", 1.0)
    assert len(set(fast)) == len(fast) == 6
    assert fast == digests("seconds", 2.0)
    assert fast[0] == slow[0]
    assert fast[1] != slow[1]
    assert len(set(digests("text", 2.0))) == 1


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    ours = processor(tmp_path, "order", **FIELDS)
    with pytest.raises(ImageError, match=r"has 14 frames to see, at 2 a second; .* accepts 12"):
        ours.process(cast(Video, Decoded(100, 10.0, shot(0))), 12)
    thin = np.zeros((4, 2, 402, 3), np.uint8)
    with pytest.raises(ImageError, match="402 x 2 pixels, which are too narrow"):
        ours.process(cast(Video, Decoded(4, 2.0, thin)), 12)
    large = processor(tmp_path, "text", size={"shortest_edge": 4096, "longest_edge": 10**9})
    frames = np.broadcast_to(np.uint8(0), (300, 1000, 1000, 3))
    with pytest.raises(ImageError, match=r"would have \d+ tokens, .* accepts about \d+: send a sh"):
        large.process(cast(Video, Decoded(300, 2.0, frames)), 768)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"do_resize": False}, "do_resize"),
        ({"num_frames": 8}, "num_frames"),
        ({"resample": 2}, "2"),
    ],
)
def test_fields_that_are_not_read_are_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        processor(tmp_path, "text", **fields)
