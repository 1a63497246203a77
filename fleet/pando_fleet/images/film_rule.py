"""`FilmRule`: which pictures of a video a model sees, at which size, and how many tokens they take.

As transformers' processors for videos of Qwen2-VL, Qwen2.5-VL and Qwen3-VL. A worker processes
videos by its rule and reports it in its heartbeats; routers estimate a video's tokens with it.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pando_fleet.images.film import Film
from pando_fleet.images.size import Size

Count = Annotated[int, Meta(ge=0, le=2**40)]

MAX_TOKENS = 1 << 17
"""Of a video, whatever its header says: more than a worker accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilmRule:
    """
    Attributes:
        bounds: "each", if `min_pixels` and `max_pixels` are of a picture; "all", of all pictures
            together
        fps: pictures a second
        min_frames, max_frames: bounds of their number
        group: pictures that become one frame of tokens
        cell: the width and height in pixels that become one token of a frame
        around: tokens beside these in each frame, such as those that say its time
        most_tokens: to which `max_pixels` is brought down for a picture; 0: not
    """

    bounds: str
    fps: Annotated[float, Meta(gt=0, le=1000)]
    min_frames: Count
    max_frames: Count
    group: Annotated[int, Meta(ge=1, le=64)]
    cell: Annotated[int, Meta(ge=1, le=4096)]
    min_pixels: Count
    max_pixels: Count
    around: Count = 0
    most_tokens: Count = 0

    def tokens_of(self, film: Film) -> int:
        """Estimated tokens of a video."""
        pictures = math.ceil(self.pictures(film.frames, film.frames / film.seconds))
        if pictures < 1:
            return 0
        size = self.fitted(film.size, pictures)
        cells = (size.width // self.cell) * (size.height // self.cell)
        return min(MAX_TOKENS, -(-pictures // self.group) * (cells + self.around))

    def pictures(self, count: int, rate: float) -> float:
        """How many pictures the model sees of a video's frames, spread evenly, by `sample_frames`
        of transformers.

        Args:
            count: frames
            rate: of these, a second
        """
        if self.bounds == "all":
            return min(max(int(count / rate * self.fps), self.min_frames), self.max_frames, count)
        upper = min(self.max_frames, count) // self.group * self.group
        wanted = min(max(count / rate * self.fps, self.min_frames), upper)
        return math.floor(wanted / self.group) * self.group

    def fitted(self, size: Size, pictures: int) -> Size:
        """The size at which the model sees each of so many pictures, by `smart_resize` of
        transformers."""
        find = self._of_all if self.bounds == "all" else self._of_each
        return find(size, pictures)

    def _of_each(self, size: Size, pictures: int) -> Size:
        least, most = self.min_pixels, self.max_pixels
        if self.most_tokens:
            together = int(self.most_tokens * self.cell * self.cell * 0.9)
            most = max(min(most, together * self.group // pictures), int(least * 1.05))
        return _fitted(size, 1, 1, self.cell, least, most)

    def _of_all(self, size: Size, pictures: int) -> Size:
        least, most, cell = self.min_pixels, self.max_pixels, self.cell
        if self.most_tokens:
            own = self.most_tokens * cell * cell
            most = pictures * max(min(own, most // pictures), int(least * 1.05))
        width, height = size
        if height < cell or width < cell:
            scale = max(cell / height, cell / width)
            width, height = int(width * scale), int(height * scale)
        rounded = round(pictures / self.group) * self.group
        return _fitted(Size(width, height), pictures, rounded, cell, least, most)


def _fitted(size: Size, count: int, pictures: int, cell: int, least: int, most: int) -> Size:
    """Width and height in multiples of `cell`, with `least` to `most` pixels in all pictures.

    Args:
        count, pictures: of these, as they are and as they are rounded
    """
    width, height = size
    wide, tall = round(width / cell) * cell, round(height / cell) * cell
    if pictures * tall * wide > most:
        beta = math.sqrt((count * height * width) / most)
        tall = max(cell, math.floor(height / beta / cell) * cell)
        wide = max(cell, math.floor(width / beta / cell) * cell)
    elif pictures * tall * wide < least:
        beta = math.sqrt(least / (count * height * width))
        tall = math.ceil(height * beta / cell) * cell
        wide = math.ceil(width * beta / cell) * cell
    return Size(wide, tall)
