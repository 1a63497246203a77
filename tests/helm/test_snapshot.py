"""The default rendering as it was last looked at; a change of it shows in the review.

`python -m tests.helm.test_snapshot` writes it anew.
"""

import re
from pathlib import Path

from tests.helm.chart import render_files

SNAPSHOT = Path(__file__).with_name("snapshot.yaml")

ELSEWHERE = ("crds/", "NOTES.txt", "tests/configmap.yaml")
"""Compared with their sources by other tests, or meant to be read alone."""


def rendered() -> str:
    files = {
        path.removeprefix("pando/templates/"): text
        for path, text in sorted(render_files({}).items())
    }
    text = "\n".join(
        f"# {path}\n{text.strip()}\n"
        for path, text in files.items()
        if text.strip() and not path.startswith(ELSEWHERE)
    )
    # Drawn anew by each rendering.
    text = re.sub(r"(password: \"|redis://:)\w{32}", r"\1PASSWORD", text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def test_the_default_rendering_is_the_one_that_was_looked_at() -> None:
    assert rendered() == SNAPSHOT.read_text(encoding="utf-8"), (
        "if that is meant: python -m tests.helm.test_snapshot"
    )


if __name__ == "__main__":
    SNAPSHOT.write_text(rendered(), encoding="utf-8")
