"""`PeftConfig`: PEFT's `adapter_config.json`, and what of it is refused.

PEFT has many methods, and LoRA many variants. A variant that is not known here would be computed
wrongly, so every field of the file that could change the computation must be known.
"""

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import regex

from pando_fleet.misread import misread
from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.files import decoded, open_regular

T = TypeVar("T")

FILE = "adapter_config.json"
MOST_RANK = 256
_MOST_BYTES = 2**20
# CPU seconds for one pattern of the file on one name, and for all. Some would never end.
_MATCH_S, _ALL_MATCHES_S = 0.5, 1.0

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
    "layer_replication": "layer replication",
    "lora_bias": "biases of LoRA's own (lora_bias)",
    "fan_in_fan_out": "transposed weights (fan_in_fan_out)",
}
# They describe the training, or what of the model is trained, which the tensors show.
_WITHOUT_EFFECT = {
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
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
    """The fields that decide which modules have which rank and scale. Names are PEFT's.

    Attributes:
        match_until: CPU time of the reading thread, after which patterns are not tried any more
    """

    r: int = 8
    lora_alpha: float = 8
    use_rslora: bool = False
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}
    target_modules: frozenset[str] | str = frozenset()
    exclude_modules: frozenset[str] | str = frozenset()
    target_parameters: frozenset[str] = frozenset()
    modules_to_save: list[str] = []
    ensure_weight_tying: bool = False
    layers_to_transform: frozenset[int] | int = frozenset()
    layers_pattern: list[str] | str = []
    match_until: float = 0.0

    def rank(self, module: str) -> int:
        """Of the module with this name in transformers."""
        return self._by_pattern(self.rank_pattern, module, self.r)

    def scale(self, module: str, rank: int) -> float:
        """The factor on what the module's two matrices give."""
        alpha = self._by_pattern(self.alpha_pattern, module, self.lora_alpha)
        return float(alpha / (rank**0.5 if self.use_rslora else rank))

    def targets(self, module: str) -> bool:
        """Whether a module gets an adapter; "all-linear" does not mean the head."""
        if isinstance(self.exclude_modules, str):
            if self.exclude_modules and self._matches(self.exclude_modules, module):
                return False
        elif _named(module, self.exclude_modules):
            return False
        if isinstance(self.target_modules, str):
            return self.targets_all_linear or self._matches(self.target_modules, module)
        return _named(module, self.target_modules) and self._in_a_layer(module)

    @property
    def targets_all_linear(self) -> bool:
        return isinstance(self.target_modules, str) and self.target_modules.lower() == "all-linear"

    def targets_parameter(self, parameter: str) -> bool:
        """Whether a parameter, with its module's name in front, gets an adapter."""
        return _named(parameter, self.target_parameters)

    def saves(self, module: str) -> bool:
        """Whether the adapter replaces the whole module."""
        return any(module.endswith(name) for name in self.modules_to_save)

    def _in_a_layer(self, module: str) -> bool:
        """Whether the module is in one of `layers_to_transform`."""
        layers = self.layers_to_transform
        layers = frozenset([layers]) if isinstance(layers, int) else layers
        if not layers:
            return True
        patterns = self.layers_pattern
        patterns = [patterns] if isinstance(patterns, str) else patterns
        for pattern in patterns or [r"[^.]*"]:
            if found := self._search(rf"(?:^|.*?\.){pattern}\.(?P<layer>\d+)\.", module):
                return int(found["layer"]) in layers
        return False

    def _matches(self, pattern: str, module: str) -> bool:
        return self._search(rf"(?:{pattern})\Z", module) is not None

    def _search(self, pattern: str, module: str) -> regex.Match[str] | None:
        """`re.match` with a time limit, since the pattern comes from a file."""
        if time.thread_time() > self.match_until:
            raise AdapterError(f"the patterns of {FILE} take too long to match")
        try:
            return _compiled(pattern).match(module, timeout=_MATCH_S, concurrent=True)
        except TimeoutError as error:
            raise AdapterError(f"the pattern {pattern!r} takes too long to match") from error
        except (regex.error, re.error, RecursionError, MemoryError) as error:
            raise AdapterError(f"{pattern!r} is no regular expression: {error}") from error

    def _by_pattern(self, patterns: Mapping[str, T], module: str, default: T) -> T:
        for pattern, value in patterns.items():
            if self._search(rf"(.*\.)?({pattern})$", module):
                return value
        return default


def read_peft_config(directory: Path) -> PeftConfig:
    """
    Raises:
        AdapterError: the file is missing or broken, or asks for something else than LoRA.
    """
    path = directory / FILE
    try:
        file, size = open_regular(path)
    except FileNotFoundError as error:
        raise AdapterError(f"{directory} has no {FILE}: it is no adapter in PEFT's form") from error
    with file:
        if size > _MOST_BYTES:
            raise AdapterError(f"{path} is larger than {_MOST_BYTES} bytes")
        try:
            data = file.read(_MOST_BYTES)
        except OSError as error:
            raise AdapterError(f"cannot read {path}: {error}") from error
    given = decoded(path, data, dict[str, Any])
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
    ours = {field.name for field in msgspec.structs.fields(PeftConfig)} - {"match_until"}
    harmless = _WITHOUT_EFFECT | {"peft_type", "bias", "init_lora_weights"}
    if unknown := sorted(used.keys() - ours - harmless):
        raise AdapterError(f"{path} uses {', '.join(unknown)}, which this worker does not know")
    try:
        fields = {k: v for k, v in used.items() if k in ours}
        fields["match_until"] = time.thread_time() + _ALL_MATCHES_S
        config = msgspec.convert(fields, PeftConfig)
    except msgspec.ValidationError as error:
        raise AdapterError(f"cannot read {path}: {misread(error).about('it')}") from error
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


@lru_cache(4096)  # some files have a pattern for each module
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern)


def _named(module: str, names: frozenset[str]) -> bool:
    """Whether a name, or its end after a dot, is among these."""
    while module not in names:
        _, dot, module = module.partition(".")
        if not dot:
            return False
    return True
