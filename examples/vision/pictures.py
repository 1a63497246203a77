"""Pictures of coloured shapes, and what they show in words."""

import random
from dataclasses import dataclass

from PIL import Image, ImageDraw

SIZE = 192  # pixels, of each side
COLOURS = {
    "red": (214, 40, 40),
    "blue": (38, 84, 214),
    "green": (34, 148, 66),
    "yellow": (240, 196, 30),
    "black": (24, 24, 24),
}
SHAPES = ("circle", "square", "triangle")
MOST = 5  # shapes in a picture
NUMBERS = ("no", "a", "two", "three", "four", "five")
COUNTS = ("none", "one", "two", "three", "four", "five")


@dataclass(frozen=True, slots=True)
class Group:
    """Some shapes of one kind and colour."""

    count: int
    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{NUMBERS[self.count]} {self.colour} {self.shape}{'s' * (self.count > 1)}"


@dataclass(frozen=True, slots=True)
class Scene:
    groups: tuple[Group, ...]  # by shape, then by colour

    @property
    def caption(self) -> str:
        """Such as "A red circle and two blue squares."."""
        *others, last = map(str, self.groups)
        text = f"{', '.join(others)} and {last}" if others else last
        return text[0].upper() + text[1:] + "."

    def count(self, shape: str) -> int:
        return sum(group.count for group in self.groups if group.shape == shape)


def scene(rng: random.Random) -> Scene:
    """One to three groups, of up to three shapes each."""
    kinds = [(shape, colour) for shape in SHAPES for colour in COLOURS]
    chosen = sorted(rng.sample(range(len(kinds)), rng.randint(1, 3)))
    groups: list[Group] = []
    left = MOST
    for number, kind in enumerate(chosen):
        later = len(chosen) - number - 1
        count = rng.randint(1, min(3, left - later))
        left -= count
        shape, colour = kinds[kind]
        groups.append(Group(count, colour, shape))
    return Scene(tuple(groups))


def draw(shown: Scene, rng: random.Random) -> Image.Image:
    """The scene's shapes at random places where none covers another, on a light ground."""
    ground = rng.randint(215, 255)
    image = Image.new("RGB", (SIZE, SIZE), tuple(ground + rng.randint(-12, 0) for _ in range(3)))
    canvas = ImageDraw.Draw(image)
    kinds = [group for group in shown.groups for _ in range(group.count)]
    for group, (x, y, radius) in zip(kinds, _places(len(kinds), rng), strict=True):
        shade = tuple(
            max(0, min(255, part + rng.randint(-14, 14))) for part in COLOURS[group.colour]
        )
        box = (x - radius, y - radius, x + radius, y + radius)
        if group.shape == "circle":
            canvas.ellipse(box, fill=shade)
        elif group.shape == "square":
            side = int(radius * 0.88)
            canvas.rectangle((x - side, y - side, x + side, y + side), fill=shade)
        else:
            canvas.polygon(
                [(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], shade
            )
    return image


def _places(count: int, rng: random.Random) -> list[tuple[int, int, int]]:
    """Centres and radii."""
    while True:
        found: list[tuple[int, int, int]] = []
        for _ in range(40 * count):
            radius = rng.randint(17, 25)
            x, y = (rng.randint(radius + 2, SIZE - radius - 2) for _ in range(2))
            # Corners reach further than the radius.
            if all(max(abs(x - ox), abs(y - oy)) > radius + other + 4 for ox, oy, other in found):
                found.append((x, y, radius))
            if len(found) == count:
                return found
