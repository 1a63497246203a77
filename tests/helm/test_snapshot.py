"""The default rendering as last reviewed, so that a change shows in the next review.

`python -m tests.helm.test_snapshot` rewrites it.
"""

import re
from pathlib import Path

from tests.helm.chart import render_files

SNAPSHOT = Path(__file__).with_name("snapshot.yaml")

ELSEWHERE = ("crds/", "NOTES.txt", "tests/configmap.yaml")
"""Other tests compare these with their sources, or they are reviewed on their own."""


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
    # Random in each rendering.
    text = re.sub(r"(password: \"|redis://:)\w{32}", r"\1PASSWORD", text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def test_the_default_rendering_is_the_one_that_was_looked_at() -> None:
    assert rendered() == SNAPSHOT.read_text(encoding="utf-8"), (
        "if this is intended: python -m tests.helm.test_snapshot"
    )


if __name__ == "__main__":
    SNAPSHOT.write_text(rendered(), encoding="utf-8")
