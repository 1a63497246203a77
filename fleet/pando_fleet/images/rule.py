"""`ImageRule`: how many tokens an image takes in a model's prompt, from its width and height.

A worker derives its rule from the model's processor and reports it in its heartbeats; routers apply
it to the sizes in images' headers. The kinds are those of transformers' processors:

    fixed   the same for every image: LLaVA 1.5, Gemma 3
    grid    scaled so that its area lies within bounds, and cut into cells: Qwen2-VL to Qwen3-VL
    rows    scaled down so that it fits a square, and cut into cells, with a token at the end of
            each row: Pixtral, Mistral Small 3
    tiles   cut into up to a number of tiles in the grid that fits its shape best, with a view of
            the whole: InternVL
    crops   cut into crops along its longer side, if that is long enough, with a view of the whole
            and text in front of these: Gemma 3 with pan and scan
    split   scaled to a longest edge, and cut into tiles with marks between them, with a view of the
            whole: Idefics3
    canvas  laid upon the best of some canvases of tiles, without the empty margins, with a token at
            the end of each row and a view of the whole: LLaVA-NeXT, LLaVA-OneVision
    none    a model that sees no images, but hears
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from pando_fleet.images.film_rule import FilmRule
from pando_fleet.images.size import Size
from pando_fleet.images.sound_rule import SoundRule

Count = Annotated[int, Meta(ge=0, le=2**31)]
Tiles = Annotated[int, Meta(ge=0, le=4096)]

UNKNOWN_SIZE = Size(1024, 768)
"""What an image is taken for whose size is not known, such as one behind an http: URL."""

MAX_TOKENS = 1 << 16
"""Of an image, whatever its header says: more than any processor makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRule:
    """
    Attributes:
        kind: one of `KINDS`; a newer worker may report another one, which gives no tokens
        tokens: of any image (fixed), or of each tile (tiles, crops, split, canvas)
        around: tokens beside these, such as those that begin and end an image
        cell: the width and height in pixels that become one token (grid, rows)
        tile: the width and height of a tile in pixels (tiles, split, canvas); of crops the least
        tile_marks: tokens that begin and end each tile but the whole (crops)
        tiles_text: tokens of text if there are tiles (crops)
        min_pixels, max_pixels: bounds of the area after scaling (grid)
        low_pixels: upper bound of the area if the client wants little `detail` (grid); 0: the same
        longest_edge: in pixels, after scaling (rows, split)
        min_tiles, max_tiles: bounds of their number (tiles); of crops only the upper one, the view
            of the whole included; of canvas only the upper one, in whose area a larger image is
            scaled down; 0: any number
        low_tiles: upper bound of their number if the client wants little `detail` (tiles, crops,
            split); 0: the same
        min_shape: the longer side by the shorter one, from which on there are tiles (crops)
        canvases: heights and widths in pixels (canvas)
        films: of the model's videos; None if it sees none
        sounds: of the files that it hears; None if it hears none
    """

    kind: str
    tokens: Count = 0
    around: Count = 0
    cell: Count = 0
    tile: Count = 0
    tile_marks: Count = 0
    tiles_text: Count = 0
    min_pixels: Count = 0
    max_pixels: Count = 0
    low_pixels: Count = 0
    longest_edge: Count = 0
    min_tiles: Tiles = 0
    max_tiles: Tiles = 0
    low_tiles: Tiles = 0
    min_shape: float = 0.0
    canvases: tuple[tuple[Count, Count], ...] = ()
    films: FilmRule | None = None
    sounds: SoundRule | None = None

    def tokens_of(self, size: Size | None, *, is_low: bool = False) -> int:
        """Estimated tokens of an image of this size, and with `detail` low; 0 if this version does
        not know the rule."""
        count = KINDS.get(self.kind)
        if count is None:
            return 0
        rule = self._low() if is_low else self
        try:
            return min(MAX_TOKENS, self.around + count(rule, size or UNKNOWN_SIZE))
        except (ZeroDivisionError, ValueError):  # a rule that lacks one of its fields
            return 0

    def _low(self) -> "ImageRule":
        """For images with little `detail`."""
        if 0 < self.low_pixels < self.max_pixels:
            fewest = min(self.min_pixels, self.low_pixels)
            return replace(self, max_pixels=self.low_pixels, min_pixels=fewest)
        return replace(self, max_tiles=self.low_tiles) if self.low_tiles else self


def _fixed(rule: ImageRule, size: Size) -> int:
    return rule.tokens


def _grid(rule: ImageRule, size: Size) -> int:
    """As `smart_resize` of transformers' Qwen2VLImageProcessor."""
    cell, (width, height) = rule.cell, size
    columns, rows = round(width / cell), round(height / cell)
    if columns * rows * cell * cell > rule.max_pixels:
        shrink = math.sqrt(width * height / rule.max_pixels)
        columns, rows = max(1, int(width / shrink / cell)), max(1, int(height / shrink / cell))
    elif columns * rows * cell * cell < rule.min_pixels:
        grow = math.sqrt(rule.min_pixels / (width * height))
        columns, rows = math.ceil(width * grow / cell), math.ceil(height * grow / cell)
    return columns * rows


def _rows(rule: ImageRule, size: Size) -> int:
    """As `get_resize_output_image_size` of transformers' PixtralImageProcessor."""
    width, height = size
    shrink = max(width, height) / rule.longest_edge
    if shrink > 1:
        width, height = max(1, int(width / shrink)), max(1, int(height / shrink))
    columns, rows = -(-width // rule.cell), -(-height // rule.cell)
    return rows * (columns + 1)


def _tiles(rule: ImageRule, size: Size) -> int:
    """As `get_optimal_tiled_canvas` of transformers' GotOcr2ImageProcessor."""
    if rule.max_tiles <= 1:
        return rule.tokens
    shape, area = size.width / size.height, size.width * size.height
    best, least = 1, math.inf
    for columns, rows in _grids(rule.min_tiles, rule.max_tiles):
        count, difference = columns * rows, abs(shape - columns / rows)
        is_large = area > 0.5 * rule.tile * rule.tile * count
        if difference < least or (difference == least and is_large):
            best, least = count, difference
    return rule.tokens * (best + 1 if best > 1 else 1)


@lru_cache(maxsize=64)
def _grids(fewest: int, most: int) -> list[tuple[int, int]]:
    """Columns and rows of every grid with that many tiles, the smallest first."""
    every = [
        (columns, rows) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)
    ]
    enough = [grid for grid in every if grid[0] * grid[1] >= fewest]
    return sorted(enough, key=lambda grid: grid[0] * grid[1])


def _crops(rule: ImageRule, size: Size) -> int:
    """As `pan_and_scan` of transformers' Gemma3ImageProcessor."""
    longer, shorter = max(size), min(size)
    shape = longer / shorter
    most = rule.max_tiles - 1
    if most < 1 or shape < rule.min_shape:
        return rule.tokens
    crops = min(most, max(2, min(longer // rule.tile, math.floor(shape + 0.5))))
    if min(math.ceil(longer / crops), shorter) < rule.tile:
        return rule.tokens
    return rule.tokens + rule.tiles_text + crops * (rule.tokens + rule.tile_marks)


def _split(rule: ImageRule, size: Size) -> int:
    """As transformers' Idefics3ImageProcessor: small images become larger, too."""
    shape = size.width / size.height
    if shape >= 1:
        width, height = rule.longest_edge, _even(rule.longest_edge / shape)
    else:
        width, height = _even(rule.longest_edge * shape), rule.longest_edge
    columns, rows = -(-width // rule.tile), -(-height // rule.tile)
    if columns * rows == 1 or rule.max_tiles == 1:
        return rule.tokens
    return rule.tokens + rows * (columns * (rule.tokens + 2) + 1)


def _even(side: float) -> int:
    return max(1, int(side) + int(side) % 2)


def _canvas(rule: ImageRule, size: Size) -> int:
    """As `_get_number_of_features` of transformers' LlavaNextProcessor and, with `max_tiles`, of
    LlavaOnevisionProcessor."""
    side = math.isqrt(rule.tokens)  # tokens along a side of a tile
    canvas_height, canvas_width = _best_canvas(rule, size)
    rows, columns = canvas_height // rule.tile * side, canvas_width // rule.tile * side
    if size.width / size.height > columns / rows:
        used = int(round(size.height * (columns / size.width), 7))
        rows -= (rows - used) // 2 * 2
    else:
        used = int(round(size.width * (rows / size.height), 7))
        columns -= (columns - used) // 2 * 2
    if rule.max_tiles:
        shrink = math.sqrt(rows * columns / (rule.max_tiles * side * side))
        if shrink > 1.1:
            rows, columns = int(rows // shrink), int(columns // shrink)
    return rule.tokens + rows * (columns + 1)


def _best_canvas(rule: ImageRule, size: Size) -> tuple[int, int]:
    """The canvas that shows most of the image, and wastes least: `select_best_resolution`."""

    def shown(canvas: tuple[int, int]) -> tuple[int, int]:
        height, width = canvas
        scale = min(width / size.width, height / size.height)
        scaled = int(size.width * scale) * int(size.height * scale)
        seen = min(scaled, size.width * size.height)
        return seen, seen - width * height

    return max(rule.canvases, key=shown)


KINDS: dict[str, Callable[[ImageRule, Size], int]] = {
    "fixed": _fixed,
    "grid": _grid,
    "rows": _rows,
    "tiles": _tiles,
    "crops": _crops,
    "split": _split,
    "canvas": _canvas,
}
