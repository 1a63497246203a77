"""Without a compiler the best prebuilt kernels for the processor are used."""

import os
import platform
from pathlib import Path

import pytest

from pando_worker.cpu import prebuilt, processor
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.build import KernelsUnavailable
from pando_worker.cpu.library import load_kernels
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.world import World

# All kinds are compiled first, which takes a minute or two.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries that an image's build makes."""
    directory = tmp_path_factory.mktemp("libraries")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prebuilt, "DIRECTORY", directory)
        prebuilt.main()
    return directory


@pytest.fixture
def libraries(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of the libraries, on a machine without a compiler."""
    directory = tmp_path / "libraries"
    directory.mkdir()
    for path in built.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(prebuilt, "DIRECTORY", directory)
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    monkeypatch.delitem(os.environ, "CXX", raising=False)
    return directory


def test_the_best_kind_that_the_processor_knows_is_taken(
    libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    new = prebuilt.KINDS["x86_64"][0].needs
    for features, name in (
        (new, "cascadelake"),
        (new - {"avx512_vnni"}, "x86-64-v3"),
        (new - {"fma"}, "x86-64"),
        (frozenset(), "x86-64"),
    ):
        monkeypatch.setattr(processor, "features", lambda features=features: features)
        for kind in prebuilt.KINDS["x86_64"]:
            kind.path.touch()
        found = prebuilt.find_prebuilt()
        assert found is not None and found.name.endswith(f"-{name}.so")


def test_a_library_of_other_sources_is_not_taken(libraries: Path) -> None:
    for path in list(libraries.iterdir()):
        path.rename(path.with_name(path.name.replace(".so", "0.so")))
    with pytest.raises(KernelsUnavailable, match=r"no C\+\+ compiler .*no prebuilt library"):
        load_kernels()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind.name,
            marks=pytest.mark.skipif(
                not kind.needs <= processor.features(), reason="this processor cannot run it"
            ),
        )
        for kind in prebuilt.KINDS[platform.machine()]
    ],
)
def test_greedy_tokens_with_each_kind_equal_those_of_transformers(
    libraries: Path, tmp_path: Path, kind: str
) -> None:
    for path in libraries.iterdir():
        if not path.name.endswith(f"-{kind}.so"):
            path.unlink()
    [path] = libraries.iterdir()
    assert prebuilt.find_prebuilt() == path
    reference = Reference(tmp_path / "model")
    model = TorchModelRunner(
        WorkerSettings(
            model=str(tmp_path / "model"),
            page_size=4,
            max_total_tokens=1024,
            threads=1,
            cpu_kernels="on",
        )
    )
    assert isinstance(model.attention, CpuAttention)
    world = World(pages=256, page_size=4, runner=model, chunked_prefill_size=32)
    prompts = {f"r{i}": prompt(9 + 7 * i, seed=i) for i in range(4)}
    for rid, tokens in prompts.items():
        world.send(rid, tokens, max_new_tokens=12)
    world.run()
    for rid, tokens in prompts.items():
        assert world.tokens[rid] == reference.greedy(tokens, 12)
