"""What a safetensors file says about itself: its tensors, and where it ends. Needs no torch.

The format: 8 bytes with the length of a JSON object, the object, and the tensors
(https://huggingface.co/docs/safetensors).
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import msgspec

from pando_worker.models.errors import BrokenCheckpoint, unreadable

_MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit
_LFS_POINTER = b"version https://git-lfs"


class SafetensorsIndex(msgspec.Struct):
    """The index of a checkpoint in several files."""

    weight_map: dict[str, str]  # tensor: file


class TensorEntry(msgspec.Struct, frozen=True):
    dtype: str  # as the format spells it: "BF16"
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]  # bytes, behind the header

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.data_offsets[1] - self.data_offsets[0]


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    path: Path
    tensors: dict[str, TensorEntry]
    end: int  # byte at which the whole file ends


_Entries = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Entry = msgspec.json.Decoder(TensorEntry)


def read_safetensors_header(path: Path) -> SafetensorsHeader:
    """
    Raises:
        BrokenCheckpoint: it cannot be read, is malformed, or ends within its header.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if _LFS_POINTER.startswith(start) and start:
                raise BrokenCheckpoint(
                    f"{path} is only Git's pointer to the file: run git lfs pull in its folder"
                )
            if length > _MAX_HEADER_BYTES:
                raise BrokenCheckpoint(f"cannot read {path}: its header claims {length} bytes")
            header = file.read(length)
        if len(start) < 8 or len(header) < length:
            raise BrokenCheckpoint(
                f"cannot read {path}: it ends within its header; download it again"
            )
        raw = _Entries.decode(header)
        raw.pop("__metadata__", None)
        tensors = {name: _Entry.decode(entry) for name, entry in raw.items()}
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
    last = max((entry.data_offsets[1] for entry in tensors.values()), default=0)
    return SafetensorsHeader(path, tensors, 8 + length + last)
