from pathlib import Path

import pytest

from tests.mutation import equivalent, lua_mutants, python_mutants
from tests.mutation.equivalent import Change
from tests.mutation.mutant import Mutant, sample
from tests.mutation.targets import TARGETS

PYTHON = b'''\
import logging
logger = logging.getLogger()
def grown(size: int, steps: list[int], limit: float = 2.5) -> int:
    """Not 1 of these words is code."""
    logger.info("grows by %d", 3)
    steps.append(size)
    if size < 7 and not steps:
        return min(size, 9)
    size += 1
    return size * 2
'''

LUA = b"""\
-- never more than 3, or less
local function put(key, count)
  if count < 7 and not held[key] then
    redis.call('SET', key, 'a < b or 4')
    note(key)
  end
  return math.min(count * 2, 9)
end
"""


def lines(mutants: list[Mutant], source: bytes, kind: str) -> list[str]:
    return [mutant.lines(source)[2] for mutant in mutants if mutant.kind == kind]


@pytest.mark.parametrize(
    ("kind", "becomes"),
    [
        ("comparison", ["if (size <= 7) and not steps:"]),
        ("logic", ["if (size < 7 or not steps):", "if size < 7 and steps:"]),
        ("arithmetic", ["return max(size, 9)", "size -= 1", "return (size // 2)"]),
        ("call", ["pass"]),
        (
            "constant",
            [
                "def grown(size: int, steps: list[int], limit: float = 3.5) -> int:",
                "if size < 8 and not steps:",
                "return min(size, 10)",
                "size += 2",
                "return size * 3",
            ],
        ),
    ],
)
def test_each_kind_breaks_python_where_it_is_code(kind: str, becomes: list[str]) -> None:
    mutants = list(python_mutants.mutants_of("grown.py", PYTHON))

    assert sorted(lines(mutants, PYTHON, kind)) == sorted(becomes)


@pytest.mark.parametrize(
    ("kind", "becomes"),
    [
        ("comparison", ["if count <= 7 and not held[key] then"]),
        ("logic", ["if count < 7 or not held[key] then", "if count < 7 and held[key] then"]),
        ("arithmetic", ["return math.max(count * 2, 9)", "return math.min(count / 2, 9)"]),
        ("call", ["", ""]),
        (
            "constant",
            [
                "if count < 8 and not held[key] then",
                "return math.min(count * 3, 9)",
                "return math.min(count * 2, 10)",
            ],
        ),
    ],
)
def test_each_kind_breaks_a_script_where_it_is_code(kind: str, becomes: list[str]) -> None:
    mutants = list(lua_mutants.mutants_of("put.lua", LUA))

    assert lines(mutants, LUA, kind) == becomes


def test_a_mutant_changes_its_place_alone() -> None:
    (mutant,) = [one for one in python_mutants.mutants_of("a.py", PYTHON) if one.kind == "call"]

    assert mutant.applied(PYTHON) == PYTHON.replace(b"steps.append(size)", b"pass")


def test_a_sample_is_the_same_for_a_seed_and_has_all_kinds() -> None:
    mutants = list(python_mutants.mutants_of("grown.py", PYTHON))

    drawn = sample(mutants, 5, "a seed")

    assert drawn == sample(mutants, 5, "a seed")
    assert len({mutant.kind for mutant in drawn}) == 5
    assert any(sample(mutants, 5, f"seed {number}") != drawn for number in range(20))


def test_an_entry_without_a_mutant_is_stale() -> None:
    possible = {equivalent.change(one, LUA) for one in lua_mutants.mutants_of("put.lua", LUA)}
    made = Change(
        "put.lua",
        "return math.min(count * 2, 9)",
        "return math.max(count * 2, 9)",
    )
    gone = Change("put.lua", "return count + 1", "return count - 1")

    assert equivalent.stale([made, gone], possible) == [gone]


def test_an_entry_without_a_reason_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "equivalent.toml"
    listed.write_text('[[mutants]]\nfile = "a"\nwas = "b"\nbecomes = "c"\nbecause = " "\n')

    with pytest.raises(ValueError, match="needs a reason"):
        equivalent.read(listed)


def test_every_target_and_its_tests_are_there() -> None:
    root = Path(__file__).parents[2]
    named = {name.partition("::")[0] for one in TARGETS for name in (one.file, *one.tests)}

    assert not [name for name in sorted(named) if not (root / name).exists()]


def test_every_equivalent_mutant_is_one_of_today_s_code() -> None:
    root = Path(__file__).parents[2]
    possible = set()
    for target in TARGETS:
        source = (root / target.file).read_bytes()
        possible |= {equivalent.change(mutant, source) for mutant in target.mutants(source)}

    assert equivalent.stale(equivalent.read(), possible) == []
