"""docs/scaling.md shows what decisions really say."""

from docs.generate_scaling import EXAMPLE, EXAMPLES, PAGE, filled


def test_the_examples_are_what_decide_answers() -> None:
    page = PAGE.read_text("utf-8")
    assert {found[2] for found in EXAMPLE.finditer(page)} == EXAMPLES.keys()
    assert filled(page) == page, "python docs/generate_scaling.py writes it anew"
