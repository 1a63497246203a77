"""What becomes of an image or a video: pixel values, and tokens in a prompt."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from pando_worker.reading.array_file import Array


@dataclass(frozen=True, slots=True)
class Place:
    """What stands for an image, or a video, in a prompt before its tokens are there.

    Attributes:
        text: as the chat template writes it
        token: this text as a token
        before, after: text that the processor puts around an image's tokens. It is tokenized
            together with the prompt's own text.
    """

    text: str
    token: int
    before: str
    after: str

    def surrounded(self, prompt: str, further: Sequence[str]) -> str:
        """A prompt's text, with the processor's text around each place.

        Args:
            further: `Processed.before` of the image in each place
        """
        if not self.before and not self.after:
            return prompt
        first, *rest = prompt.split(self.text)
        if len(rest) != len(further):
            return prompt  # which is refused later: text contains the image token
        around = (before + self.before + self.text + self.after for before in further)
        return first + "".join(map(add, around, rest))


@dataclass(frozen=True, slots=True)
class Processed:
    """An image as the model takes it; or a frame of a video, of which the vision tower sees each
    alone.

    Attributes:
        digest: 16 bytes, of the arrays and of the time: equal for equal images, however they were
            sent
        token_ids: what stands for the image in the prompt
        first, length: the part of these from the first to the last image token, which embeddings of
            the vision tower replace; between them are marks, such as the ends of rows
        arrays: what the vision tower takes for this image, by the names of its arguments: pixel
            values in float32, and for many models sizes or grids in int64. The first dimension of
            each is that along which those of several images are joined.
        grid: frames, rows and columns of its tokens, for a model that gives them positions in these
            three dimensions
        time, is_continued: as of `PromptImage`
        before: further text that the processor puts in front of this image
    """

    digest: bytes
    token_ids: list[int]
    first: int
    length: int
    arrays: dict[str, Array]
    grid: tuple[int, int, int] | None = None
    time: int = 0
    is_continued: bool = False
    before: str = ""


def digest_of(arrays: dict[str, Array], place: str = "") -> bytes:
    """
    Args:
        place: what else decides an image's keys and values in the decoder
    """
    digest = hashlib.blake2b(place.encode(), digest_size=16)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.data)
    return digest.digest()
