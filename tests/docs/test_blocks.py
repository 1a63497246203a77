"""Every shell and Python block of the pages is run by `make test-docs`, or says why not."""

from pathlib import Path

import pytest

from tests.docs import __main__ as reader
from tests.docs.blocks import ROOT, Block, MarkError, Step, blocks, pages, steps

PAGE = """Text.

```sh
one
```

<!-- not run: it needs a cluster -->

```console
$ two \\
    --three
printed
$ four
```

<!-- run beside the next until http://127.0.0.1:8000/readyz -->
```python
five
```

```text
not a block
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def test_blocks_are_found_with_their_marks(page: Path) -> None:
    first, second, third = blocks(page)
    assert first == Block(page, 4, "sh", "one")
    assert (second.language, second.not_run) == ("console", "it needs a cluster")
    assert (third.language, third.until) == ("python", "http://127.0.0.1:8000/readyz")


def test_a_console_block_has_commands_and_what_they_print(page: Path) -> None:
    _, console, _ = blocks(page)
    assert steps(console) == [Step("two \\\n    --three", ("printed",)), Step("four", ())]


def test_a_comment_that_is_no_mark_is_refused(page: Path) -> None:
    page.write_text("<!-- dont run -->\n```sh\none\n```\n", encoding="utf-8")
    with pytest.raises(MarkError) as error:
        list(blocks(page))
    assert "'<!-- dont run -->' is no mark" in str(error.value)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_marks_of_a_page_can_be_read(page: Path) -> None:
    for block in blocks(page):
        assert not block.not_run or len(block.not_run.split()) >= 3, block.place


def test_a_checkout_without_a_venv_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reader, "ROOT", tmp_path)
    with pytest.raises(SystemExit) as ended:
        reader.main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"{tmp_path} has no .venv for the clone: run make install there, or give --install\n"
    )
