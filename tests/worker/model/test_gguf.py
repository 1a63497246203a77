"""GGUF files compared with the transformers models that they were written from."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    Olmo2Config,
    Qwen2Config,
)
from transformers.integrations.gguf.dequant import dequantize as transformers_dequantize

from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, ModelNotFound, UnsupportedModel
from pando_worker.models.loading.checkpoint import open_checkpoint
from pando_worker.models.loading.gguf.architectures import config_fields
from pando_worker.models.loading.gguf.header import read_header
from pando_worker.models.loading.gguf.metadata import Metadata
from pando_worker.models.loading.gguf.tensors import GgufTensor
from pando_worker.models.loading.gguf.tokenizer import write_tokenizer
from pando_worker.models.loading.hub import resolve_model
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.families import FAMILIES, Case
from tests.worker.model.gguf_files import write_gguf
from tests.worker.model.paged import BareModel, Row

PROMPTS = [prompt(length, seed=length) for length in (1, 9, 22)]
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
GPT_OSS = FAMILIES["gpt-oss"].fields
_GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}

# In addition to the families' own cases, cases whose GGUF metadata repeats config.json.
CASES = {
    name: FAMILIES[name]
    for name in (
        "llama",
        "llama, biases, tied",
        "mistral",
        "mistral, window",
        "qwen2",
        "qwen3",
        "phi3, long context",
        "mixtral",
        "qwen3-moe",
    )
} | {
    "llama3": Case(LlamaConfig, {"head_dim": 16, "rope_parameters": _LLAMA3}),
    "qwen2, yarn": Case(Qwen2Config, {"rope_parameters": _YARN}),
    "olmo2": Case(Olmo2Config),
    "gemma2": Case(
        Gemma2Config,
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 6,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gpt-oss": Case(
        GptOssConfig, {key: value for key, value in GPT_OSS.items() if key != "swiglu_limit"}
    ),
    "gemma3": Case(
        Gemma3TextConfig,
        {
            "num_hidden_layers": 7,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 6,
            "rope_parameters": _GEMMA3_ROPE,
        },
    ),
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def reference(folder: Path, case: Case, **fields: Any) -> Reference:
    return Reference(
        folder / "checkpoint",
        config_type=case.config_type,
        context_length=case.context_length,
        at_least=case.at_least,
        **case.fields | fields,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_logits_equal_those_of_the_model_it_was_written_from(case: Case, tmp_path: Path) -> None:
    model = reference(tmp_path, case)
    file = write_gguf(model.path, tmp_path / "model.gguf")
    loaded = BareModel(
        resolve_model(str(file)), 4, dtype=torch.float32, context_length=case.context_length
    )
    expected = torch.cat([model.all_logits(tokens) for tokens in PROMPTS])
    logits = loaded.run([Row(list(tokens)) for tokens in PROMPTS])
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


QUANTIZED = [Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0]
BLOCKS = [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.IQ4_NL]
BLOCKS += [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]
BITS = {Kind.Q4_0: 4, Kind.Q4_1: 4, Kind.Q5_0: 5, Kind.Q5_1: 5, Kind.Q8_0: 8}


@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda kind: kind.name)
def test_a_quantized_weight_is_the_original_up_to_its_rounding(kind: Kind, tmp_path: Path) -> None:
    model = reference(tmp_path, Case(LlamaConfig), intermediate_size=64)
    file = write_gguf(model.path, tmp_path / "model.gguf", kind=kind)
    loaded = BareModel(resolve_model(str(file)), 4, dtype=torch.float32)
    for name, original in model.model.state_dict().items():
        if not name.endswith("down_proj.weight"):
            continue
        layer: Any = loaded.model.get_submodule(name.removesuffix(".weight"))
        error = (layer.weight.matrix - original).abs()
        blocks = original.reshape(len(original), -1, 32)
        if kind in BITS:
            span = blocks.amax(-1) - blocks.amin(-1) if kind.name.endswith("_1") else None
            span = blocks.abs().amax(-1) * 2 if span is None else span
            # One step: the block's largest value is representable, or is one step beyond the range.
            allowed = (span / (2 ** BITS[kind] - 2)).repeat_interleave(32, dim=-1)
        else:
            allowed = original.abs() * (2**-10 if kind == Kind.F16 else 2**-7) + 1e-6
        assert (error <= allowed * 1.01).all()
        assert error.max() > 0


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_blocks_mean_what_transformers_takes_them_for(kind: Kind, tmp_path: Path) -> None:
    """Random bytes, with the scales made finite."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = 6, 512
    random = np.random.default_rng(0)
    data = random.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    halves = data.view(np.float16)  # any pair of bytes may be a scale or part of a code
    halves[~np.isfinite(halves)] = 1.0
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.ffn_down.weight", data.reshape(rows, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    place = read_header(path).tensors["blk.0.ffn_down.weight"]
    tensor = GgufTensor(path, place, place.shape)
    truth = transformers_dequantize(torch.from_numpy(data.copy()).flatten(), int(kind))
    whole = tensor.read((), torch.device("cpu"))
    torch.testing.assert_close(whole, truth.reshape(rows, columns), rtol=1e-5, atol=1e-5)
    part = (slice(2, 5), slice(100, 301))
    assert torch.equal(tensor.read(part, torch.device("cpu")), whole[part])


@pytest.mark.parametrize("name", ["llama, biases, tied", "mixtral"])
def test_a_part_is_that_part_of_the_whole(name: str, tmp_path: Path) -> None:
    """Parts as ranks read them: rows of permuted queries, of an expert, of a bias; columns."""
    model = reference(tmp_path, FAMILIES[name])
    file = write_gguf(model.path, tmp_path / "model.gguf")
    with open_checkpoint(resolve_model(str(file))) as tensors:
        assert tensors
        for stored in tensors.values():
            whole = stored.read((), torch.device("cpu"))
            assert tuple(whole.shape) == stored.shape
            for share in range(4):
                part = tuple(
                    slice(size * share // 4, size * (share + 1) // 4) for size in stored.shape
                )
                assert torch.equal(stored.read(part, torch.device("cpu")), whole[part])


def test_a_split_file_is_read_from_any_of_its_parts(tmp_path: Path) -> None:
    model = reference(tmp_path, Case(LlamaConfig))
    (tmp_path / "split").mkdir()
    write_gguf(model.path, tmp_path / "split" / "model.gguf", parts=2)
    parts = sorted((tmp_path / "split").iterdir())
    assert len(parts) > 5
    logits = [
        BareModel(resolve_model(str(name)), 4, dtype=torch.float32).run([Row(list(PROMPTS[1]))])
        for name in (parts[0], parts[3], tmp_path / "split")
    ]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])
    torch.testing.assert_close(logits[0], model.all_logits(PROMPTS[1]), atol=2e-4, rtol=2e-4)
    parts[2].unlink()
    with pytest.raises(ModelNotFound, match=parts[2].name):
        resolve_model(str(parts[0]))


def test_a_folder_with_several_files_is_asked_which(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelNotFound, match=r"a\.gguf, b\.gguf"):
        resolve_model(str(tmp_path))


def test_the_directory_is_made_once_and_again_for_another_file(tmp_path: Path) -> None:
    model = reference(tmp_path, Case(LlamaConfig))
    file = write_gguf(model.path, tmp_path / "model.gguf")
    first = resolve_model(str(file))
    config = first / "config.json"
    made = config.stat().st_mtime_ns
    assert resolve_model(str(file)) == first
    assert config.stat().st_mtime_ns == made
    os.utime(file, (1, 1))
    assert resolve_model(str(file)) != first


def test_what_is_not_read_is_refused_by_name(tmp_path: Path) -> None:
    def written(architecture: str, kind: Kind = Kind.F32) -> str:
        path = tmp_path / f"{architecture}.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        size = gguf.GGML_QUANT_SIZES[kind][1]
        data = np.zeros((1, size if kind != Kind.F32 else 32), np.uint8)
        tensor = data if kind != Kind.F32 else data.astype(np.float32)
        writer.add_tensor("x.weight", tensor, raw_dtype=None if kind == Kind.F32 else kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return str(path)

    with pytest.raises(UnsupportedModel, match="'mamba'; supported: llama, qwen2"):
        resolve_model(written("mamba"))
    named = r"'x\.weight' is of GGUF type IQ2_XXS; supported: F32"
    with pytest.raises(UnsupportedModel, match=named):
        resolve_model(written("llama", Kind.IQ2_XXS))
    unknown = Path(written("llama", Kind.IQ2_XXS))
    unknown.write_bytes(unknown.read_bytes().replace(b"\x10\0\0\0" + bytes(8), b"\x63" + bytes(11)))
    with pytest.raises(UnsupportedModel, match="is of GGUF type 99; supported: F32"):
        resolve_model(str(unknown))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("sound")
    model = reference(folder, Case(LlamaConfig), num_hidden_layers=1, vocab_size=40)
    return write_gguf(model.path, folder / "model.gguf", kind=Kind.Q8_0).read_bytes()


def opened(data: bytes, folder: Path) -> bool:
    """Whether the file is read; otherwise it must raise one of the documented errors."""
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.gguf"
    path.write_bytes(data)
    try:
        directory = resolve_model(str(path))
        config = read_config(directory)
        with open_checkpoint(directory) as tensors:
            for stored in tensors.values():
                stored.read((), torch.device("cpu"))
        return config.vocab_size > 0
    except (BrokenCheckpoint, UnsupportedModel):
        return False
    finally:
        path.unlink()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_truncated_file_is_refused(sound: bytes, tmp_path: Path, data: st.DataObject) -> None:
    assert opened(sound, tmp_path)
    assert not opened(sound[: data.draw(st.integers(0, len(sound) - 1))], tmp_path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_lying_file_is_read_or_refused_and_nothing_else(
    sound: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    """Counts, lengths, offsets, names, types: anything in the header."""
    head = len(sound) - 40_000 if len(sound) > 44_000 else len(sound) // 2
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, head))
        new = data.draw(st.binary(min_size=1, max_size=9) | st.just(b"\xff" * 8))
        changed[at : at + len(new)] = new
    opened(bytes(changed), tmp_path)


ODD = [0, -1, 1, 2**32 - 1, 2**63, 0.0, -1.0, float("inf"), float("nan"), "", "x", True, [], [1, 2]]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_odd_metadata_is_read_or_refused_and_nothing_else(case: Case, tmp_path: Path) -> None:
    """Each metadata value in turn, and each small tensor that is read with them."""
    model = reference(tmp_path, case)
    header = read_header(write_gguf(model.path, tmp_path / "model.gguf"))
    (tmp_path / "out").mkdir()
    refused = 0
    for key in header.metadata:
        for odd in ODD:
            changed = replace(header, metadata=header.metadata | {key: odd})
            try:
                metadata = Metadata(changed)
                fields = msgspec.json.encode(config_fields(metadata))
                write_tokenizer(metadata, tmp_path / "out")
                (tmp_path / "out" / "config.json").write_bytes(fields)
                read_config(tmp_path / "out")
            except (BrokenCheckpoint, UnsupportedModel):
                refused += 1
    assert refused > len(header.metadata)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_rotary_divisors_that_are_none_of_llama_3_s_are_refused(
    value: float, tmp_path: Path
) -> None:
    model = reference(tmp_path, CASES["llama3"])
    file = write_gguf(model.path, tmp_path / "model.gguf")
    place = read_header(file).tensors["rope_freqs.weight"]
    with file.open("r+b") as data:
        data.seek(place.start)
        data.write(np.full(place.shape, value, np.float32).tobytes())
    with pytest.raises(UnsupportedModel, match="in a way that is not Llama 3's"):
        resolve_model(str(file))


def test_safetensors_go_before_a_gguf_file_beside_them(tmp_path: Path) -> None:
    """As in repositories that have both."""
    model = reference(tmp_path, Case(LlamaConfig))
    write_gguf(model.path, model.path / "model.gguf", kind=Kind.Q8_0)
    with open_checkpoint(resolve_model(str(model.path))) as tensors:
        assert {stored.path.suffix for stored in tensors.values()} == {".safetensors"}


def test_a_file_that_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelNotFound, match="is a file, and no GGUF file"):
        resolve_model(str(tmp_path / "model.bin"))
