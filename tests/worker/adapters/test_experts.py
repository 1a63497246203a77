"""Adapters of experts and their routers, compared with `peft` on transformers.

PEFT has two forms: parameters of all experts at once (`target_parameters`), and, from the time
when transformers had a module for each matrix, an adapter for each. It still reads the second form
for two families; here such files are written by hand.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.peft_config import FILE
from pando_worker.adapters.tensor_file import WEIGHTS
from tests.worker.adapters.peft_adapters import BASE, PeftAdapters, Slots, assert_logits, greedy
from tests.worker.model.checkpoints import prompt
from tests.worker.model.conftest import References
from tests.worker.model.paged import Paged

BOTH = ["experts.gate_up_proj", "experts.down_proj"]
FUSED: dict[str, dict[str, Any]] = {
    "attention": {"r": 8, "target_modules": ["q_proj", "o_proj"]},
    "experts": {"r": 3, "lora_alpha": 5, "target_modules": [], "target_parameters": BOTH},
    "gate and up": {"r": 2, "target_modules": ["o_proj"], "target_parameters": BOTH[:1]},
    "down": {"r": 18, "target_modules": [], "target_parameters": BOTH[1:], "use_rslora": True},
    "patterns": {
        "target_modules": ["v_proj"],
        "target_parameters": BOTH,
        "r": 4,
        "rank_pattern": {r"experts\.gate_up_proj": 7, r"layers\.1\.mlp\.experts\.down_proj": 5},
        "alpha_pattern": {"experts.down_proj": 3},
    },
}
_ROUTER = {"r": 2, "target_modules": ["q_proj"], "lora_alpha": 30}
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "mixtral": FUSED
    | {
        "all linear": {"r": 3, "lora_alpha": 5},
        "router": _ROUTER | {"target_parameters": ["gate.weight"]},
    },
    "qwen3-moe, some layers": FUSED
    | {"all linear": {"r": 3}, "router": _ROUTER | {"target_parameters": ["gate.weight"]}},
    "gpt-oss": FUSED | {"router": _ROUTER | {"target_parameters": ["router.weight"]}},
}
ONE_BY_ONE = {
    "mixtral": ("block_sparse_moe", ("w1", "w3", "w2"), range(2)),
    "qwen3-moe": ("mlp", ("gate_proj", "up_proj", "down_proj"), range(2)),
}


def write_one_by_one(family: str, sizes: tuple[int, int, int], path: Path) -> Path:
    """An adapter for each matrix of each expert, for the router and the queries.

    Args:
        sizes: hidden size, intermediate size of an expert, experts
    """
    (block, names, layers), (hidden, inner, experts) = ONE_BY_ONE[family], sizes
    torch.manual_seed(9)
    shapes: dict[str, tuple[int, int]] = {}
    for layer in layers:
        start = f"model.layers.{layer}"
        shapes[f"{start}.self_attn.q_proj"] = (hidden, hidden)
        shapes[f"{start}.{block}.gate"] = (hidden, experts)
        for expert in range(experts):
            for name, shape in zip(
                names, ((hidden, inner), (hidden, inner), (inner, hidden)), strict=True
            ):
                shapes[f"{start}.{block}.experts.{expert}.{name}"] = shape
    tensors: dict[str, Tensor] = {}
    for module, (inputs, outputs) in shapes.items():
        prefix = f"base_model.model.{module}.lora_"
        tensors[f"{prefix}A.weight"] = torch.randn(3, inputs) * 0.1
        tensors[f"{prefix}B.weight"] = torch.randn(outputs, 3) * 0.1
    path.mkdir()
    save_file(tensors, path / WEIGHTS)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 3,
        "lora_alpha": 4,
        "target_modules": ["q_proj", "gate", *names],
    }
    (path / FILE).write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module", params=FAMILIES)
def adapters(
    request: pytest.FixtureRequest,
    reference_of: References,
    tmp_path_factory: pytest.TempPathFactory,
) -> PeftAdapters:
    folder = tmp_path_factory.mktemp("adapters")
    return PeftAdapters(reference_of(request.param), folder, FAMILIES[request.param])


def serve(adapters: PeftAdapters, cpu_kernels: str = "off") -> tuple[Paged, dict[str, int]]:
    paged = Paged(
        adapters.base.path,
        context_length=adapters.base.context_length,
        cpu_kernels=cpu_kernels,
        max_loras=8,
        lora_ranks=120 * 16,
    )
    slots = Slots(paged.runner)
    where = {BASE: -1}
    for slot, (name, path) in enumerate(adapters.paths.items()):
        slots.load(slot, path)
        where[name] = slot
    return paged, where


@pytest.mark.parametrize("cpu_kernels", ["off", "on"])
def test_a_mixed_batch_has_the_logits_of_peft(adapters: PeftAdapters, cpu_kernels: str) -> None:
    """For a prefill, and for decodes after it."""
    paged, where = serve(adapters, cpu_kernels)
    names = [*where, *where]
    prompts = [prompt(5 + 3 * index % 14, seed=index) for index in range(len(names))]
    slots = [where[name] for name in names]
    assert_logits(paged, slots, adapters, names, prompts, steps=3, tolerance=5e-4)


def test_greedy_tokens_equal_those_of_peft_in_any_batch(adapters: PeftAdapters) -> None:
    paged, where = serve(adapters)
    prompts = [prompt(5 + 3 * index % 14, seed=index) for index in range(len(where))]
    found = greedy(paged.runner, paged.pages, prompts, list(where.values()), 5, 7)
    assert found == [adapters.best_after(*each) for each in zip(where, prompts, found, strict=True)]


@pytest.mark.parametrize("family", ONE_BY_ONE)
def test_an_adapter_for_each_matrix_of_each_expert(
    family: str, reference_of: References, tmp_path: Path
) -> None:
    """As it is, and as `peft` saves it again: it makes those of gate and up one of twice the rank,
    whose zeros are left out here."""
    base = reference_of(family)
    config = base.model.config
    inner = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    sizes = (config.hidden_size, inner, config.num_local_experts)
    adapters = PeftAdapters(base, tmp_path, {})
    adapters.add("each", write_one_by_one(family, sizes, tmp_path / "each"))
    adapters.save("each", tmp_path / "again")
    adapters.add("again", tmp_path / "again")
    paged, where = serve(adapters, "on")
    assert paged.runner.adapters is not None
    infos = [paged.runner.adapters.check(str(path)).result() for path in adapters.paths.values()]
    assert [info.rank for info in infos] == [3, 3]
    assert infos[0].num_bytes == infos[1].num_bytes
    names = ["each", BASE, "again", "each"]
    prompts = [prompt(9, seed=seed) for seed in range(4)]
    slots = [where[name] for name in names]
    assert_logits(paged, slots, adapters, names, prompts, steps=1, tolerance=5e-4)


Change = Callable[[dict[str, Tensor], dict[str, Any]], object]
BAD: dict[str, tuple[Change, str]] = {
    "one parameter, not two": (
        lambda _, config: config.update(target_parameters=BOTH[:1]),
        r"adapters of 2 parameters of .*mlp.experts; its target_parameters name 1",
    ),
    "biases": (
        lambda _, config: config["target_parameters"].append("experts.down_proj_bias"),
        "adapters of biases of .*mlp.experts",
    ),
    "another number of experts": (
        lambda tensors, _: tensors.update(
            {key: value[:-3].clone() for key, value in tensors.items() if "lora_A" in key}
        ),
        r"lora_A.weight for .* is \[\d+, \d+\]; with rank 3",
    ),
    "one matrix": (
        lambda tensors, _: tensors.pop(min(key for key in tensors if "lora_B" in key)),
        "must have .lora_A.weight and .lora_B.weight",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_adapters_of_experts_are_refused(
    name: str, reference_of: References, tmp_path: Path
) -> None:
    change, message = BAD[name]
    adapters = PeftAdapters(reference_of("mixtral"), tmp_path, {"experts": FUSED["experts"]})
    path = adapters.paths["experts"]
    tensors, config = load_file(path / WEIGHTS), json.loads((path / FILE).read_text())
    change(tensors, config)
    save_file(tensors, path / WEIGHTS)
    (path / FILE).write_text(json.dumps(config))
    paged = Paged(adapters.base.path, cpu_kernels="off", max_loras=1, lora_ranks=50 * 16)
    assert paged.runner.adapters is not None
    with pytest.raises(AdapterError, match=message):
        paged.runner.adapters.check(str(path)).result()
