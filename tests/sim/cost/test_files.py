"""Cost models by name and by path, and errors for wrong ones."""

from pathlib import Path

import msgspec
import pytest

from pando_sim.cost import CostModelError, load, shipped
from pando_sim.cost.files import parse, render


def test_every_shipped_model_is_named_like_its_file_and_names_its_source() -> None:
    assert shipped()
    for name in shipped():
        model = load(name)
        assert model.name == name
        assert len(model.source) > 20
        assert model.file.quality is not None


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    file = msgspec.structs.replace(load(shipped()[0]).file, name="mine")
    path = tmp_path / "mine.json"
    path.write_bytes(render(file))
    assert load(str(path)).file == file


def test_an_unknown_name_is_reported_with_the_known_ones() -> None:
    with pytest.raises(CostModelError, match=f"no cost model 'h900'; choose one of {shipped()[0]}"):
        load("h900")


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(CostModelError, match=r"none\.json: No such file"):
        load("somewhere/none.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_s": 0.0}, r"step\.step_s must be"),
        ({"step_s": -1.0}, r"step\.step_s must be a number, more than 0"),
        ({"token_s": "fast"}, r"step\.token_s must be a number, not a string"),
        ({"tokens_s": 1.0}, r"step\.tokens_s is an unknown field"),
    ],
)
def test_a_wrong_coefficient_is_reported_with_its_place(
    change: dict[str, object], message: str
) -> None:
    content = msgspec.to_builtins(load(shipped()[0]).file)
    content["step"] |= change
    with pytest.raises(CostModelError, match=message) as raised:
        parse(msgspec.json.encode(content), "mine.json")
    assert "mine.json" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_invalid_json_is_reported() -> None:
    with pytest.raises(CostModelError, match=r"mine\.json: the file is not JSON"):
        parse(b"step: 1", "mine.json")


def test_a_host_tier_needs_what_only_some_files_say() -> None:
    assert load("h100-llama-3.1-8b-fp8").copy_bytes_per_s > 1e9
    with pytest.raises(CostModelError, match="cpu-pando-tiny has no kv_bytes"):
        _ = load("cpu-pando-tiny").copy_bytes_per_s
