"""`PeftConfig`: PEFT's `adapter_config.json`, and what of it is refused.

PEFT has many methods, and LoRA many variants. A variant that is not known here would be computed
wrongly, so every field of the file that could change the computation must be known.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import regex

from pando_worker.adapters.errors import AdapterError

T = TypeVar("T")

FILE = "adapter_config.json"
MOST_RANK = 256
_MOST_BYTES = 2**20
_MATCH_S = 0.5  # for one pattern of the file on one name; others would not end in a lifetime

_VARIANTS = {
    "use_dora": "DoRA",
    "use_qalora": "QALoRA",
    "alora_invocation_tokens": "activated LoRA (aLoRA)",
    "arrow_config": "Arrow",
    "use_bdlora": "BD-LoRA",
    "kasa_config": "KaSA",
    "velora_config": "VeLoRA",
    "monteclora_config": "MonteCLoRA",
    "trainable_token_indices": "trainable tokens",
    "modules_to_save": "whole modules (modules_to_save)",
    "target_parameters": "parameters of experts (target_parameters)",
    "layer_replication": "layer replication",
    "lora_bias": "biases of LoRA's own (lora_bias)",
    "fan_in_fan_out": "transposed weights (fan_in_fan_out)",
}
# They describe the training, or what of the model is trained, which the tensors show.
_WITHOUT_EFFECT = {
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "ephemeral_gpu_offload",
    "eva_config",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
}
# They begin the training with other weights of the base than its own.
_OTHER_BASES = ("pissa", "olora", "corda", "loftq", "lora_ga")
_TASKS = (None, "CAUSAL_LM", "FEATURE_EXTRACTION")


class PeftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that decide which modules have which rank and scale. Names are PEFT's."""

    r: int = 8
    lora_alpha: float = 8
    use_rslora: bool = False
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}
    target_modules: list[str] | str = []
    exclude_modules: list[str] | str = []
    layers_to_transform: list[int] | int = []
    layers_pattern: list[str] | str = []

    def rank(self, module: str) -> int:
        """Of the module with this name in transformers."""
        return self._by_pattern(self.rank_pattern, module, self.r)

    def scale(self, module: str, rank: int) -> float:
        """The factor on what the module's two matrices give."""
        alpha = self._by_pattern(self.alpha_pattern, module, self.lora_alpha)
        return float(alpha / (rank**0.5 if self.use_rslora else rank))

    def targets(self, module: str) -> bool:
        """Whether a linear layer other than the head is to have an adapter."""
        if isinstance(self.exclude_modules, str):
            if self.exclude_modules and _matches(self.exclude_modules, module):
                return False
        elif _named(module, self.exclude_modules):
            return False
        if isinstance(self.target_modules, str):
            is_all = self.target_modules.lower() == "all-linear"
            return is_all or _matches(self.target_modules, module)
        return _named(module, self.target_modules) and self._in_a_layer(module)

    def _in_a_layer(self, module: str) -> bool:
        """Whether the module is in one of `layers_to_transform`."""
        layers = self.layers_to_transform
        layers = [layers] if isinstance(layers, int) else layers
        if not layers:
            return True
        patterns = self.layers_pattern
        patterns = [patterns] if isinstance(patterns, str) else patterns
        for pattern in patterns or [r"[^.]*"]:
            if found := _search(rf"(?:^|.*?\.){pattern}\.(?P<layer>\d+)\.", module):
                return int(found["layer"]) in layers
        return False

    @staticmethod
    def _by_pattern(patterns: Mapping[str, T], module: str, default: T) -> T:
        for pattern, value in patterns.items():
            if _search(rf"(.*\.)?({pattern})$", module):
                return value
        return default


def read_peft_config(directory: Path) -> PeftConfig:
    """
    Raises:
        AdapterError: the file is missing or broken, or asks for something else than LoRA.
    """
    path = directory / FILE
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise AdapterError(f"{path} is larger than {_MOST_BYTES} bytes")
        given = msgspec.json.decode(data, type=dict[str, Any])
    except FileNotFoundError as error:
        raise AdapterError(f"{directory} has no {FILE}: it is no adapter in PEFT's form") from error
    except (OSError, msgspec.DecodeError) as error:
        raise AdapterError(f"cannot read {path}: {error}") from error
    # PEFT writes null, {} and false where a feature is not used.
    used = {
        name: value
        for name, value in given.items()
        if value is not None and value is not False and value not in ({}, [], "")
    }
    kind = given.get("peft_type")
    if kind != "LORA":
        raise AdapterError(f"{path} is an adapter of kind {kind!r}; only LoRA is supported")
    for name, variant in _VARIANTS.items():
        if name in used:
            raise AdapterError(
                f"{path} uses {variant}, which is not supported: only LoRA of linear layers is"
            )
    _refuse_other_bases(path, given.get("init_lora_weights"))
    if (bias := used.get("bias", "none")) != "none":
        raise AdapterError(f"{path} trains biases (bias: {bias!r}); only 'none' is supported")
    if (task := given.get("task_type")) not in _TASKS:
        raise AdapterError(f"{path} is for the task {task}; only CAUSAL_LM is supported")
    ours = {field.name for field in msgspec.structs.fields(PeftConfig)}
    harmless = _WITHOUT_EFFECT | {"peft_type", "bias", "init_lora_weights"}
    if unknown := sorted(used.keys() - ours - harmless):
        raise AdapterError(f"{path} uses {', '.join(unknown)}, which this worker does not know")
    try:
        config = msgspec.convert({k: v for k, v in used.items() if k in ours}, PeftConfig)
    except msgspec.ValidationError as error:
        raise AdapterError(f"{path}: {error}") from error
    for rank in (config.r, *config.rank_pattern.values()):
        if not 0 < rank <= MOST_RANK:
            raise AdapterError(f"{path} has rank {rank}; it must be from 1 to {MOST_RANK}")
    return config


def _refuse_other_bases(path: Path, init: Any) -> None:
    if isinstance(init, str) and init.lower().startswith(_OTHER_BASES):
        raise AdapterError(
            f"{path} was trained from {init!r} weights, which change the base model as well; save"
            " it with PEFT's path_initial_model_for_weight_conversion"
        )


def _named(module: str, names: list[str]) -> bool:
    return any(module == name or module.endswith(f".{name}") for name in names)


def _matches(pattern: str, module: str) -> bool:
    return _search(rf"(?:{pattern})\Z", module) is not None


def _search(pattern: str, module: str) -> regex.Match[str] | None:
    """`re.match` with a time limit, since the pattern comes from a file."""
    try:
        return regex.match(pattern, module, timeout=_MATCH_S, concurrent=True)
    except TimeoutError as error:
        raise AdapterError(f"the pattern {pattern!r} takes too long to match") from error
    except (regex.error, re.error) as error:
        raise AdapterError(f"{pattern!r} is no regular expression: {error}") from error
