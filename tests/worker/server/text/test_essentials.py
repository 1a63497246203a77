"""The parts of a tokenizer that a start needs, kept between starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from pando_worker.tokenizer import essentials
from pando_worker.tokenizer.essentials import load_essentials
from tests.waiting import PATIENCE_S
from tests.worker.server.text.tokenizers_for_tests import byte_level, save

TEXT = "Zwei Sätze: 1,234 für <|end|> alle.\n\n\tx = 3"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pando" / "tokenizers"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return save(byte_level(), tmp_path / "model", chat_template="{{ messages }}")


def test_a_kept_tokenizer_needs_no_transformers_and_gives_the_same_tokens(model: Path) -> None:
    first = load_essentials(model)
    script = (
        "import sys; from pathlib import Path\n"
        "from pando_worker.tokenizer.essentials import load_essentials\n"
        f"found = load_essentials(Path({str(model)!r}))\n"
        f"print('transformers' in sys.modules, found.backend().encode({TEXT!r}).ids)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    ).stdout
    truth = AutoTokenizer.from_pretrained(model)
    assert printed.strip() == f"False {truth(TEXT).input_ids}"
    assert (first.chat_template, first.eos_token_id) == ("{{ messages }}", truth.eos_token_id)


def test_another_file_is_another_tokenizer(model: Path, kept: Path) -> None:
    load_essentials(model)
    (model / "chat_template.jinja").write_text("new: {{ messages }}")
    assert load_essentials(model).chat_template == "new: {{ messages }}"
    assert len(list(kept.glob("*.json"))) == 2


@pytest.mark.parametrize("content", ["", "{}", '{"state": 3}', '{"state": "x", "chat'])
def test_an_unreadable_file_is_ignored_and_replaced(
    model: Path, kept: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    first = load_essentials(model)
    [path] = kept.glob("*.json")
    path.write_text(content)
    assert load_essentials(model) == first
    assert "is not readable and is ignored" in caplog.text
    caplog.clear()
    assert load_essentials(model) == first
    assert not caplog.text


def test_no_more_are_kept_than_a_bound(
    model: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(essentials, "KEPT", 2)
    for number in range(4):
        (model / "chat_template.jinja").write_text(f"{number}")
        load_essentials(model)
    assert len(list(kept.glob("*.json"))) == 2


def test_without_a_folder_it_is_loaded_each_time(model: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    assert load_essentials(model) == load_essentials(model)
