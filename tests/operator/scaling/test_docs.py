"""docs/scaling.md shows real decisions."""

from tools.generate.scaling import EXAMPLE, EXAMPLES, PAGE


def test_each_example_of_the_page_has_a_pool_to_run_and_each_pool_an_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {found[2] for found in EXAMPLE.finditer(page)} == EXAMPLES.keys()
