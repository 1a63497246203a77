"""`VideoProcessor`: what transformers' video processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL do.

Those import torchvision. This one computes the same, to the bit: torchvision resizes frames with
torch's own function. The vision towers of these models see each frame alone, by which is meant what
they call so: `temporal_patch_size` pictures. So each becomes an image of the prompt.
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pando_fleet.images.film_rule import FilmRule
from pando_fleet.images.size import Size
from pando_worker.models.kinds.text_part import VideoForm
from pando_worker.reading.array_file import Array
from pando_worker.vision.errors import ImageError
from pando_worker.vision.processed import Place, Processed, digest_of
from pando_worker.vision.video_files import Frame, Video

_MOST_BYTES = 512 * 2**20  # of a video's pixel values
_FPS = 2.0  # what these models were trained with

_CLIP = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
_QWEN2 = {
    **_CLIP,
    "size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 768 * 28 * 28},
    "patch_size": 14,
    "max_video_tokens": 128_000,
}
_QWEN3 = {
    "image_mean": (0.5, 0.5, 0.5),
    "image_std": (0.5, 0.5, 0.5),
    "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 768 * 32 * 32},
    "patch_size": 16,
    "max_video_tokens": 768,
}
# Fields with the only values that are read here, which are the usual ones.
_USUAL = {"do_resize": True, "do_rescale": True, "do_normalize": True, "resample": 3}


class VideoFields(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model's files, by the names of transformers."""

    size: dict[str, Any]
    image_mean: tuple[float, float, float]
    image_std: tuple[float, float, float]
    patch_size: int
    temporal_patch_size: int = 2
    merge_size: int = 2
    fps: float | None = None
    min_frames: int = 4
    max_frames: int = 768
    cap_pixels_per_frame: bool | None = None
    max_video_tokens: int


def read_fields(model_dir: Path, form: VideoForm) -> VideoFields:
    """
    Raises:
        ValueError: the model's files have others than are read here.
    """
    given = {name: value for name, value in _given(model_dir).items() if value is not None}
    for name, usual in _USUAL.items():
        if given.get(name, usual) != usual:
            raise ValueError(f"{name} is {given[name]!r} for videos; only {usual!r} is read")
    if "num_frames" in given:
        raise ValueError("num_frames is set for videos; only fps is read")
    if form.times == "text":
        return msgspec.convert({**_QWEN3, **given}, VideoFields, strict=False)
    fields = {**_QWEN2, **given}
    size = dict(fields["size"])
    size["shortest_edge"] = given.get("min_pixels", size.get("shortest_edge"))
    size["longest_edge"] = given.get("max_pixels", size.get("longest_edge"))
    return msgspec.convert({**fields, "size": size}, VideoFields, strict=False)


def _given(model_dir: Path) -> dict[str, Any]:
    """The fields for videos, from the file in which transformers looks for them first."""
    whole = model_dir / "processor_config.json"
    if whole.is_file():
        found: dict[str, Any] = json.loads(whole.read_text("utf-8"))
        if "video_processor" in found:
            return dict(found["video_processor"])
    for name in ("video_preprocessor_config.json", "preprocessor_config.json"):
        if (file := model_dir / name).is_file():
            return dict(json.loads(file.read_text("utf-8")))
    return {}


class VideoProcessor:
    """
    Attributes:
        place: of a video in a prompt
        rule: which pictures it takes, and how many tokens they make
    """

    def __init__(self, form: VideoForm, fields: VideoFields, tokenizer: Any) -> None:
        import torch  # noqa: F401  # that takes seconds, which no video should wait for

        self._form, self._fields, self._tokenizer = form, fields, tokenizer
        self.place = Place(tokenizer.convert_ids_to_tokens(form.token), form.token, "", "")
        self.rule = _rule(form, fields, tokenizer)
        self._start, self._end = tokenizer.convert_tokens_to_ids(
            ["<|vision_start|>", "<|vision_end|>"]
        )

    def sample(self, count: int, rate: float) -> list[int]:
        """Which of a video's frames the model sees, by `sample_frames` of transformers.

        Args:
            count: of the video's frames, at least 2
            rate: frames a second
        """
        wanted = self.rule.pictures(count, rate)
        if self._form.times == "text":
            spread = np.linspace(0, count - 1, int(wanted)).round().astype(int)
            return [int(index) for index in spread]
        import torch

        return [int(index) for index in torch.arange(0, count, count / wanted)]

    def process(self, video: Video, max_frames: int) -> list[Processed]:
        """Its frames, whose tokens one after the other are the video's.

        Raises:
            ImageError: too many frames or tokens, or a shape that the model does not see.
        """
        if video.count < self._fields.temporal_patch_size:
            raise ImageError(f"has fewer than {self._fields.temporal_patch_size} frames")
        indices = self.sample(video.count, video.rate)
        if len(indices) > max_frames:
            raise ImageError(
                f"has {len(indices)} frames to see, at {self._fields.fps or _FPS:g} a second; this"
                f" worker accepts {max_frames}"
            )
        times = self._times(video, indices)
        values = list(self._pixel_values(video.frames(indices), len(indices)))
        return [
            self._frame(*value, time, is_last=number == len(values) - 1)
            for number, (value, time) in enumerate(zip(values, times, strict=True))
        ]

    def _times(self, video: Video, indices: Sequence[int]) -> Sequence[int | str]:
        """Of each frame: in positions, or as text."""
        group = self._fields.temporal_patch_size
        starts = range(0, len(indices), group)
        if self._form.times == "text":
            ends = [min(start + group, len(indices)) - 1 for start in starts]
            at = [index / video.rate for index in indices]
            pairs = zip(starts, ends, strict=True)
            return [f"<{(at[start] + at[end]) / 2:.1f} seconds>" for start, end in pairs]
        step = np.float32(1)
        if self._form.times == "seconds":
            seconds = group / (len(indices) / video.count * video.rate)
            step = np.float32(self._form.per_second) * np.float32(seconds)
        return [int(time) for time in np.arange(len(starts), dtype=np.float32) * step]

    def _frame(
        self, array: NDArray[np.float32], grid: tuple[int, int], time: int | str, *, is_last: bool
    ) -> Processed:
        rows, columns = (patches // self._fields.merge_size for patches in grid)
        tokens = [self._form.token] * (rows * columns)
        arrays: dict[str, Array] = {
            "image_grid_thw": np.array([[1, *grid]], dtype=np.int64),
            "pixel_values": array,
        }
        if isinstance(time, str):
            before = [*self._tokenizer.encode(time, add_special_tokens=False), self._start]
            ids, first = [*before, *tokens, self._end], len(before)
            place: tuple[int, bool] = (0, False)
        else:
            ids, first, place = tokens, 0, (time, not is_last)
        digest = digest_of(arrays, f"frame {place};")
        return Processed(digest, ids, first, len(tokens), arrays, (1, rows, columns), *place)

    def _pixel_values(
        self, frames: Iterator[Frame], count: int
    ) -> Iterator[tuple[NDArray[np.float32], tuple[int, int]]]:
        """Of each frame the patches, [patches, 3 * temporal_patch_size * patch_size ** 2], and
        their rows and columns.

        Args:
            frames: pictures of one size
            count: how many there are
        """
        size, shape = (0, 0), None
        group: list[Any] = []
        for picture in frames:
            if shape is None:
                shape = picture.shape
                size = self._size(shape[0], shape[1], count)
            elif picture.shape != shape:
                raise ImageError("has frames of several sizes")
            group.append(self._resized(picture, size))
            if len(group) == self._fields.temporal_patch_size:
                yield self._patches(group), self._grid(size)
                group = []
        if group:
            group += [group[-1]] * (self._fields.temporal_patch_size - len(group))
            yield self._patches(group), self._grid(size)

    def _grid(self, size: tuple[int, int]) -> tuple[int, int]:
        return size[0] // self._fields.patch_size, size[1] // self._fields.patch_size

    def _size(self, height: int, width: int, count: int) -> tuple[int, int]:
        """Of the resized pictures, height and width, by `smart_resize` of transformers.

        Raises:
            ImageError: they are too narrow, or too many pixels together.
        """
        if max(height, width) > 200 * min(height, width):
            raise ImageError(f"has frames of {width} x {height} pixels, which are too narrow")
        wide, tall = self.rule.fitted(Size(width, height), count)
        size = tall, wide
        group = self._fields.temporal_patch_size
        pictures = -(-count // group) * group
        tokens = math.prod(self._grid(size)) * pictures // group // self._fields.merge_size**2
        if 12 * pictures * math.prod(size) > _MOST_BYTES:
            most = _MOST_BYTES * tokens // (12 * pictures * math.prod(size))
            raise ImageError(
                f"would have {tokens} tokens, of {count} frames seen at {size[1]} x {size[0]}"
                f" pixels; this worker accepts about {most}: send a shorter or smaller video"
            )
        return size

    def _resized(self, picture: Frame, size: tuple[int, int]) -> Any:
        """[3, height, width] in float32, normalized."""
        import torch

        pixels = torch.from_numpy(picture).permute(2, 0, 1)[None].contiguous()
        resized = torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True)
        mean, std = (
            (torch.tensor(values) * (1.0 / (1 / 255)))[:, None, None]
            for values in (self._fields.image_mean, self._fields.image_std)
        )
        return resized[0].float().sub_(mean).div_(std)

    def _patches(self, pictures: Sequence[Any]) -> NDArray[np.float32]:
        stacked = np.stack([picture.numpy() for picture in pictures])
        count, channels, height, width = stacked.shape
        patch, merged = self._fields.patch_size, self._fields.merge_size
        cells = (
            (height // patch // merged, merged, patch),
            (width // patch // merged, merged, patch),
        )
        apart = stacked.reshape(count, channels, *cells[0], *cells[1])
        rows = apart.transpose(2, 5, 3, 6, 1, 0, 4, 7)
        return np.ascontiguousarray(rows.reshape(-1, channels * count * patch * patch))


def _rule(form: VideoForm, fields: VideoFields, tokenizer: Any) -> FilmRule:
    is_text = form.times == "text"
    time = len(tokenizer.encode("<10.5 seconds>", add_special_tokens=False)) if is_text else 0
    return FilmRule(
        bounds="all" if is_text else "each",
        fps=fields.fps or _FPS,
        min_frames=fields.min_frames,
        max_frames=fields.max_frames,
        group=fields.temporal_patch_size,
        cell=fields.patch_size * fields.merge_size,
        min_pixels=fields.size["shortest_edge"],
        max_pixels=fields.size["longest_edge"],
        around=time + 2 if is_text else 0,  # and its two marks
        most_tokens=fields.max_video_tokens if fields.cap_pixels_per_frame else 0,
    )
