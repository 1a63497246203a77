"""What slots hold over time, and where adapters are when no slot holds them."""

import json
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.layout import pieces
from pando_worker.adapters.peft_config import FILE
from pando_worker.adapters.tensor_file import WEIGHTS
from pando_worker.models.lora.linear import PackedAdapter
from pando_worker.runner.adapters.host_cache import Shares
from pando_worker.runner.adapters.loader import AdapterLoader
from pando_worker.runner.adapters.pace import Pace
from pando_worker.runner.adapters.recipe import Recipe
from pando_worker.runner.cpu.cpu_tape import DecodeTapes
from tests.worker.adapters.batches import with_adapters
from tests.worker.adapters.peft_adapters import (
    BASE,
    EIGHT,
    PeftAdapters,
    Slots,
    greedy,
)
from tests.worker.model.checkpoints import prompt
from tests.worker.model.conftest import References
from tests.worker.model.paged import Paged, Pages, Row

NAMES = [BASE, *EIGHT]
PROMPTS = [prompt(4 + index % 5, seed=index) for index in range(6)]
SETTINGS: dict[str, Any] = {"max_loras": 4, "lora_ranks": 10 * 16}


@pytest.fixture(scope="module")
def adapters(reference_of: References, tmp_path_factory: pytest.TempPathFactory) -> PeftAdapters:
    return PeftAdapters(reference_of("llama"), tmp_path_factory.mktemp("adapters"), EIGHT)


def test_recorded_steps_follow_slots_that_change(adapters: PeftAdapters) -> None:
    """Each round loads other adapters, or none, and mixes the rows otherwise; the number of rows
    stays the same, so that all rounds play the same tapes."""
    paged = Paged(adapters.base.path, cpu_kernels="on", **SETTINGS)
    slots, random = Slots(paged.runner), np.random.default_rng(0)
    for _ in range(5):
        held = random.permutation(list(EIGHT))[:4].tolist()
        for slot, name in enumerate(held):
            slots.load(slot, adapters.paths[name])
        chosen = random.integers(-1, 4, len(PROMPTS)).tolist()
        pages = Pages(paged.runner.capacity_tokens // 4, 4)
        assert greedy(paged.runner, pages, PROMPTS, chosen, 8, 9) == [
            adapters.greedy(BASE if slot < 0 else held[slot], tokens, 8)
            for slot, tokens in zip(chosen, PROMPTS, strict=True)
        ]
    assert isinstance(paged.runner.graphs, DecodeTapes)
    kinds = paged.runner.graphs._tapes
    assert {kind.with_adapters for kind in kinds} == {True, False}


@pytest.mark.parametrize("cpu_kernels", ["off", "on"])
def test_a_step_of_the_base_alone_is_that_of_a_model_without_adapters(
    adapters: PeftAdapters, cpu_kernels: str
) -> None:
    with_slots = Paged(adapters.base.path, cpu_kernels=cpu_kernels, **SETTINGS)
    without = Paged(adapters.base.path, cpu_kernels=cpu_kernels)
    Slots(with_slots.runner).load(0, adapters.paths["rank 8"])
    mine, theirs = ([Row(list(tokens)) for tokens in PROMPTS] for _ in range(2))
    for _ in range(4):
        logits = with_slots.logits(mine)
        assert torch.equal(logits, without.logits(theirs))
        for row, other, token in zip(mine, theirs, logits.argmax(-1).tolist(), strict=True):
            row.tokens.append(token)
            other.tokens.append(token)


@pytest.mark.parametrize("name", ["rank 8", "rank 40, rslora", "patterns"])
def test_an_adapter_computes_what_merged_weights_do(
    adapters: PeftAdapters, name: str, tmp_path: Path
) -> None:
    adapters.merged(name).save_pretrained(tmp_path)
    merged, paged = Paged(tmp_path), Paged(adapters.base.path, **SETTINGS)
    Slots(paged.runner).load(2, adapters.paths[name])
    rows, others = ([Row(prompt(40, seed=seed)) for seed in range(3)] for _ in range(2))
    batch = paged.pages.batch(rows, [row.pending for row in rows])
    logits = paged.runner.logits(with_adapters(batch, [2, 2, 2]))
    torch.testing.assert_close(logits, merged.logits(others), atol=3e-4, rtol=3e-4)


def test_adapters_of_a_quantized_base_are_added_in_float(adapters: PeftAdapters) -> None:
    """The error stays that of the base's integers, much less than what the adapter changes."""
    paged = Paged(adapters.base.path, quantization="int8", **SETTINGS)
    assert paged.runner.lora is not None and paged.runner.lora.dtype == torch.bfloat16
    Slots(paged.runner).load(1, adapters.paths["rank 16"])
    rows = [Row(prompt(30)), Row(prompt(30))]
    batch = paged.pages.batch(rows, [30, 30])
    base, adapted = paged.runner.logits(with_adapters(batch, [-1, 1]))
    true_base = adapters.base.logits(rows[0].tokens)
    true_adapted = adapters.all_logits("rank 16", rows[0].tokens)[-1]
    error = (adapted - true_adapted).norm()
    assert error < 2 * (base - true_base).norm()
    assert error < 0.2 * (true_base - true_adapted).norm()


def test_host_memory_is_bounded_and_a_dropped_adapter_is_read_again(
    adapters: PeftAdapters, tmp_path: Path
) -> None:
    paged = Paged(adapters.base.path, lora_host_mib=1, **SETTINGS)
    loader = paged.runner.adapters
    assert loader is not None
    loader._host.most_bytes = 200_000  # of which an adapter of rank 16 takes a third
    names = ["rank 1", "rank 8", "rank 16", "attention", "a layer"]
    infos = [loader.check(str(adapters.paths[name])).result() for name in names]
    assert len({info.identity for info in infos}) == len(names)
    assert sum(i.num_bytes for i in infos if i.identity in loader.in_host_memory) <= 200_000
    assert infos[0].identity not in loader.in_host_memory, "the one unused for longest"
    loader.load(0, [3], infos[0]).result()
    assert infos[0].identity in loader.in_host_memory
    loader.forget(infos[0].identity)  # then its files count as unknown
    loader.load(0, [3], infos[0]).result()
    rows = [Row(list(tokens)) for tokens in PROMPTS]
    batch = paged.pages.batch(rows, [row.pending for row in rows])
    logits = paged.runner.logits(with_adapters(batch, [0] * len(rows)))
    expected = [adapters.all_logits("rank 1", row.tokens)[-1] for row in rows]
    torch.testing.assert_close(logits, torch.stack(expected), atol=3e-4, rtol=3e-4)
    loader.forget(infos[0].identity)
    assert infos[0].identity not in loader.in_host_memory


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_an_adapter_that_is_read_again_has_the_same_pages(
    reference_of: References, tmp_path: Path, dtype: torch.dtype, quantization: str
) -> None:
    base = reference_of("llama")
    adapters = PeftAdapters(base, tmp_path, EIGHT, dtype=dtype)
    paged = Paged(base.path, quantization=quantization, **SETTINGS)
    loader = paged.runner.adapters
    assert loader is not None
    for path in adapters.paths.values():
        info = loader.check(str(path)).result()
        before = loader._host.get(info.identity)
        loader._host.drop(info.identity)
        recipe = loader._checked[info.identity].recipe
        assert recipe is not None
        loader.load(0, range(info.pages), info).result()
        after = loader._host.get(info.identity)
        assert before is not None and after is not None
        for one, other in zip(before, after, strict=True):
            assert one.sections == other.sections
            assert one.pages.dtype == other.pages.dtype
            assert _numbers(one, loader) == _numbers(other, loader)


def _numbers(share: PackedAdapter, loader: AdapterLoader) -> list[bytes]:
    """The bytes of all its matrices; what is between them means nothing."""
    found = []
    for section, packed in zip(loader._layouts[0], share.sections, strict=True):
        for start, columns in ((packed.a, section.depth), (packed.b, section.width)):
            for piece in pieces(start, packed.rank, columns, share.pages.shape[1]):
                numbers = share.pages[piece.page, piece.place :][: piece.rows * columns]
                found.append(numbers.view(torch.uint8).numpy().tobytes())
    return found


def test_files_that_change_while_they_are_read_are_not_taken_for_the_earlier_ones(
    adapters: PeftAdapters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Paged(adapters.base.path, **SETTINGS).runner.adapters
    assert loader is not None
    shutil.copytree(adapters.paths["rank 8"], tmp_path / "a")
    weights = tmp_path / "a" / WEIGHTS
    info = loader.check(str(tmp_path / "a")).result()
    loader._host.drop(info.identity)
    loader.load(0, [0], info).result()
    loader._host.drop(info.identity)
    checked, read = weights.read_bytes(), Recipe.shares
    changed = bytearray(checked)
    changed[-2] ^= 1
    written: list[int] = []

    def write_and_read(recipe: Recipe, directory: Path) -> Shares:
        written.append(weights.write_bytes(changed))
        return read(recipe, directory)

    monkeypatch.setattr(Recipe, "shares", write_and_read)
    with pytest.raises(AdapterError, match="has other weights now than when it was checked"):
        loader.load(0, [0], info).result()
    assert written
    weights.write_bytes(checked[:-4])
    with pytest.raises(AdapterError, match="has the bytes from"):
        loader.load(0, [0], info).result()
    weights.unlink()
    with pytest.raises(AdapterError, match=r"has no adapter_model\.safetensors"):
        loader.load(0, [0], info).result()


def test_an_identity_is_that_of_weights_and_scales(adapters: PeftAdapters, tmp_path: Path) -> None:
    loader = Paged(adapters.base.path, **SETTINGS).runner.adapters
    assert loader is not None

    def copy(name: str, **fields: Any) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        source = adapters.paths["rank 8"]
        config = json.loads((source / FILE).read_text()) | fields
        (directory / FILE).write_text(json.dumps(config))
        (directory / WEIGHTS).write_bytes((source / WEIGHTS).read_bytes())
        return directory

    def identity(directory: Path) -> bytes:
        assert loader is not None
        return loader.check(str(directory)).result().identity

    first = copy("first")
    info = loader.check(str(first)).result()
    assert info.identity == identity(copy("second", lora_dropout=0.5))
    assert info.identity != identity(copy("scaled", lora_alpha=17))
    tensors = load_file(first / WEIGHTS)
    next(iter(tensors.values()))[0, 0] += 1
    save_file(tensors, first / WEIGHTS)
    loader.forget(info.identity)
    with pytest.raises(AdapterError, match="has other weights now than when it was checked"):
        loader.load(0, [0], info).result()
    assert identity(first) != info.identity


def test_work_in_the_background_has_a_tenth_of_a_core_while_steps_run() -> None:
    """And does not wait when there are none, or more cores than steps use."""
    share, waits = _shares_of_a_core(Pace(shares_cores=True), steps=True)
    assert share < 0.1
    assert waits > 3
    assert _shares_of_a_core(Pace(shares_cores=True), steps=False)[1] < waits / 2
    assert _shares_of_a_core(Pace(shares_cores=False), steps=True)[1] < waits / 2


def _shares_of_a_core(pace: Pace, *, steps: bool) -> tuple[float, float]:
    """The core's share that the thread uses, and how often it waits in 10 ms of its work: how busy
    the machine is lowers the first, and does not change the second."""
    pace.begin()
    started, used, waited = time.perf_counter(), time.thread_time(), _waits()
    while time.perf_counter() < started + 0.3 or time.thread_time() < used + 0.01:
        if steps:
            pace.step()
        sum(range(5000))
        pace.rest()
    worked = time.thread_time() - used
    return worked / (time.perf_counter() - started), (_waits() - waited) / (worked / 0.01)


def _waits() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
