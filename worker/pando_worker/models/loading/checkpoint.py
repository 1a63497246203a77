"""A checkpoint's tensors by name, read a part at a time, whatever files they are in.

What is decoded from several of them (`quantization.py`) looks the same.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel, unreadable
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.gguf.directory import SUFFIX
from pando_worker.models.loading.gguf.read import read_gguf
from pando_worker.models.safetensors_files import SafetensorsIndex


@dataclass(frozen=True, slots=True)
class InFile:
    """A `Stored` that a file has as it is."""

    path: Path
    slices: Any  # what safetensors hands out

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.slices.get_shape())

    @property
    def dtype(self) -> str:
        return str(self.slices.get_dtype())

    def read(self, part: tuple[slice, ...], device: torch.device) -> Tensor:
        tensor: Tensor = self.slices[part]
        return tensor.to(device)


@contextmanager
def open_checkpoint(model_dir: Path) -> Iterator[dict[str, Stored]]:
    """All tensors of a model directory, by file; they can be read until the context ends.

    Raises:
        BrokenCheckpoint: files missing or unreadable, a tensor that is there twice.
    """
    if parts := gguf_files(model_dir):
        yield read_gguf(parts)
        return
    with ExitStack() as files:
        tensors: dict[str, Stored] = {}
        for path in weight_files(model_dir):
            file = files.enter_context(_opened(path))
            for name in file.keys():  # noqa: SIM118, it is no dict and cannot be iterated
                if name in tensors:
                    raise BrokenCheckpoint(f"{path} has the tensor {name} a second time")
                tensors[name] = InFile(path, file.get_slice(name))
        yield tensors


def weight_files(model_dir: Path) -> Sequence[Path]:
    """
    Raises:
        BrokenCheckpoint: there are none in safetensors format.
        UnsupportedModel: they are in GGUF, which pando's own families alone read.
    """
    if gguf_files(model_dir):
        raise UnsupportedModel(f"{model_dir} has its weights in GGUF: transformers cannot run it")
    index, single = model_dir / "model.safetensors.index.json", model_dir / "model.safetensors"
    if index.is_file():
        try:
            weight_map = msgspec.json.decode(index.read_bytes(), type=SafetensorsIndex).weight_map
        except (OSError, msgspec.DecodeError) as error:
            raise unreadable(index, error) from error
        return [model_dir / name for name in sorted(set(weight_map.values()))]
    if single.is_file():
        return [single]
    raise BrokenCheckpoint(
        f"{model_dir} has neither model.safetensors nor model.safetensors.index.json: only weights"
        " in safetensors format are read"
    )


def gguf_files(model_dir: Path) -> Sequence[Path]:
    """Empty where safetensors lie beside them: some repositories hold both."""
    if any(model_dir.glob("*.safetensors")):
        return ()
    return sorted(model_dir.glob(f"*{SUFFIX}"))


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error
