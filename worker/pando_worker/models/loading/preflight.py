"""What can be said of a model in a moment, from the heads of its files: before torch is imported
and anything is started. Whatever passes may still turn out to be broken while it loads.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pando_worker.adapters.errors import AdapterError
from pando_worker.host_memory import CPU_BYTES, machine_bytes
from pando_worker.models.config import ModelConfig, read_config
from pando_worker.models.errors import BrokenCheckpoint, DoesNotFit, ModelError, unreadable
from pando_worker.models.loading.gguf.directory import SUFFIX
from pando_worker.models.loading.hub import adapter_here
from pando_worker.models.safetensors_files import (
    SafetensorsHeader,
    SafetensorsIndex,
    TensorEntry,
    read_safetensors_header,
)
from pando_worker.models.transformers_backend.known import check_known
from pando_worker.settings import WorkerSettings
from pando_worker.settings.compute import DType

GIB = 2**30
# Any of these makes a tokenizer.
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json")
_FLOATS = frozenset(("F64", "F32", "F16", "BF16"))
_FLOAT_BYTES = {DType.AUTO: 4.0, DType.FLOAT32: 4.0, DType.BFLOAT16: 2.0, DType.FLOAT16: 2.0}
_INTEGER_BYTES = {"int8": 1.0, "int4": 0.5}  # without their scales
_VISION = re.compile(r"vision|visual|image|multi_modal")  # in the names of tensors


def preflight(
    model_dir: Path,
    settings: WorkerSettings,
    adapter: Callable[[str], Path | None] = adapter_here,
) -> ModelConfig:
    """Returns the model's configuration.

    Args:
        adapter: the directory of an adapter; `resolve_adapter` also gets those of the hub. None
            leaves one unchecked. Raises ModelNotFound.

    Raises:
        UnsupportedModel: neither Pando nor transformers knows its architecture.
        BrokenCheckpoint: `config.json` or the tokenizer is missing or malformed, files of weights
            are missing or cut, the chat template is no template, or an adapter of the settings is
            no adapter.
        DoesNotFit: the machine lacks the memory that the settings allow, or they allow less than
            the weights take.
    """
    config = read_config(model_dir, settings.model_impl)
    check_known(config)
    _check_tokenizer(model_dir)
    _check_templates(model_dir)
    headers = [] if settings.load_format == "dummy" else list(_safetensors(model_dir))
    for header in headers:
        _check_whole(header)
    if settings.device == "cpu":
        _check_memory(headers, model_dir, settings)
    for name, path in settings.lora_paths:
        check_adapter(name, path, adapter)
    return config


def _check_tokenizer(model_dir: Path) -> None:
    if not any((model_dir / name).is_file() for name in _TOKENIZERS):
        raise BrokenCheckpoint(f"{model_dir} has no tokenizer: none of {', '.join(_TOKENIZERS)}")
    path = model_dir / "tokenizer.json"
    try:
        if path.is_file():
            msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError) as error:
        raise BrokenCheckpoint(f"{unreadable(path, error)}; download it again") from error


class _Named(msgspec.Struct):
    name: str
    template: str


class _TokenizerConfig(msgspec.Struct):
    chat_template: str | list[_Named] | dict[str, str] | None = None


def _check_templates(model_dir: Path) -> None:
    templates = list(_templates(model_dir))
    if not templates:
        return
    import jinja2

    parser = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])
    for place, text in templates:
        try:
            parser.parse(text)
        except jinja2.TemplateSyntaxError as error:
            if "generation" not in str(error):  # transformers' own tag
                where = f"line {error.lineno}: {error.message}"
                raise BrokenCheckpoint(f"{place} is no chat template: {where}") from error


def _templates(model_dir: Path) -> Iterator[tuple[str, str]]:
    """Where each chat template stands, and its text: a file, or a field if there is no file."""
    path = model_dir / "chat_template.jinja"
    if path.is_file():
        try:
            yield str(path), path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BrokenCheckpoint(f"cannot read {path}: {error}") from error
        return
    path = model_dir / "tokenizer_config.json"
    if not path.is_file():
        return
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_TokenizerConfig).chat_template
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
    if isinstance(found, str):
        yield f"chat_template in {path}", found
    elif found:
        named = {one.name: one.template for one in found} if isinstance(found, list) else found
        for name, text in named.items():
            yield f"chat_template {name!r} in {path}", text


def _safetensors(model_dir: Path) -> Iterator[SafetensorsHeader]:
    index, single = model_dir / "model.safetensors.index.json", model_dir / "model.safetensors"
    if not index.is_file():
        if single.is_file():
            yield read_safetensors_header(single)
        elif not any(model_dir.glob(f"*{SUFFIX}")):
            raise BrokenCheckpoint(
                f"{model_dir} has no weights: neither model.safetensors, nor"
                " model.safetensors.index.json, nor a GGUF file"
            )
        return
    try:
        weight_map = msgspec.json.decode(index.read_bytes(), type=SafetensorsIndex).weight_map
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(index, error) from error
    names = sorted(set(weight_map.values()))
    if missing := [name for name in names if not (model_dir / name).is_file()]:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        raise BrokenCheckpoint(
            f"{model_dir} lacks {shown} of {len(names)} files: download it again"
        )
    for name in names:
        yield read_safetensors_header(model_dir / name)


def _check_whole(header: SafetensorsHeader) -> None:
    short = header.end - header.path.stat().st_size
    if short > 0:
        raise BrokenCheckpoint(f"{header.path} ends {_size(short)} early: download it again")


def _check_memory(
    headers: list[SafetensorsHeader], model_dir: Path, settings: WorkerSettings
) -> None:
    here = machine_bytes()
    allowed = CPU_BYTES if settings.memory_gib is None else int(settings.memory_gib * GIB)
    if allowed > here:
        raise DoesNotFit(
            f"memory_gib is {settings.memory_gib:g}, and there are {_size(here)} of memory here"
        )
    needed = _least_bytes(headers, settings) or _gguf_bytes(model_dir, settings)
    if needed > allowed:
        raise DoesNotFit(
            f"its weights take {_size(needed)} in memory, {_size(allowed)} are allowed: set"
            f" memory_gib, of which {here / GIB:.0f} fit here"
        )


def check_adapter(name: str, path: str, found: Callable[[str], Path | None]) -> None:
    """Raises BrokenCheckpoint. `found` is as in `preflight`."""
    try:
        if directory := found(path):
            _check_files(directory)
    except (ModelError, AdapterError) as error:
        raise BrokenCheckpoint(f"adapter {name!r} of lora_modules: {error}") from error


def _check_files(directory: Path) -> None:
    """Raises AdapterError."""
    # Imported here: numpy and regex take long, and most workers start without adapters.
    from pando_worker.adapters.peft_config import read_peft_config
    from pando_worker.adapters.tensor_file import open_weights

    read_peft_config(directory)
    open_weights(directory)[0].close()


def _least_bytes(headers: list[SafetensorsHeader], settings: WorkerSettings) -> int:
    """What the text part of the weights takes in memory at least, for all ranks together."""
    float_bytes = _INTEGER_BYTES.get(settings.quantization, _FLOAT_BYTES[settings.dtype])

    def nbytes(entry: TensorEntry) -> float:
        return entry.elements * float_bytes if entry.dtype in _FLOATS else entry.nbytes

    tensors = {name: entry for header in headers for name, entry in header.tensors.items()}
    return int(sum(nbytes(one) for name, one in tensors.items() if not _VISION.search(name)))


def _gguf_bytes(model_dir: Path, settings: WorkerSettings) -> int:
    """A file's blocks stay as they are, unless the settings want other numbers."""
    if settings.quantization != "auto":
        return 0
    return sum(path.stat().st_size for path in model_dir.glob(f"*{SUFFIX}"))


def _size(count: int) -> str:
    for unit, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
