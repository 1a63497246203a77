"""The files of a recording on a real disk."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pando_router.recording.files import DAY_S, Files, header_of
from pando_router.recording.folder import delete_old, recordings
from pando_router.recording.form import Header

BEGAN = 1_790_000_000.0  # Unix time
HEADER = Header(started=BEGAN, router="r", file="0" * 16, secret="one")
LINE_BYTES = 11


def files(folder: Path, *, most: int = 3, lines: int = 3, secret: str = "one") -> Files:
    """Each of them has room for so many lines."""
    header = Header(started=0.0, router="r", secret=secret)
    room = len(msgspec.json.encode(HEADER)) + 1 + LINE_BYTES * lines
    return Files(folder / "r.jsonl", header, max_bytes=room, most=most, days=1.0)


def line(number: int) -> bytes:
    return b"line %05d\n" % number


def numbers(path: Path) -> list[int]:
    first, *rest = path.read_bytes().splitlines()
    assert msgspec.json.decode(first, type=Header).router == "r"
    return [int(one.removeprefix(b"line ")) for one in rest]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    written = files(tmp_path)
    for number in range(20):
        written.write(line(number), BEGAN)
    written.close()
    assert names(tmp_path) == ["r.jsonl", "r.jsonl.1", "r.jsonl.2"]
    kept = [
        number
        for name in ("r.jsonl.2", "r.jsonl.1", "r.jsonl")
        for number in numbers(tmp_path / name)
    ]
    assert kept == list(range(12, 20))
    assert len({one.header.file for one in recordings(tmp_path / "r.jsonl")}) == 3


def test_a_single_file_is_started_again(tmp_path: Path) -> None:
    written = files(tmp_path, most=1)
    for number in range(5):
        written.write(line(number), BEGAN)
    written.close()
    assert names(tmp_path) == ["r.jsonl"]
    assert numbers(tmp_path / "r.jsonl") == [3, 4]


def test_a_router_that_starts_again_goes_on_with_its_file(tmp_path: Path) -> None:
    for number in range(7):  # a router that cannot stay alive
        written = files(tmp_path)
        written.write(line(number), BEGAN + number)
        written.close()
    assert names(tmp_path) == ["r.jsonl", "r.jsonl.1", "r.jsonl.2"]
    assert numbers(tmp_path / "r.jsonl.2") == [0, 1, 2]
    assert numbers(tmp_path / "r.jsonl") == [6]


@pytest.mark.parametrize("end", ["secret", "killed"])
def test_what_does_not_go_on_becomes_an_older_file(tmp_path: Path, end: str) -> None:
    file = tmp_path / "r.jsonl"
    written = files(tmp_path)
    written.write(line(1), BEGAN)
    written.close()
    if end == "killed":  # within a line
        file.write_bytes(file.read_bytes()[:-3])
    written = files(tmp_path, secret="one" if end == "killed" else "other")
    written.write(line(2), BEGAN)
    written.close()
    assert numbers(file) == [2]
    assert (tmp_path / "r.jsonl.1").read_bytes().splitlines()[1].startswith(b"line 000")


def test_recordings_are_deleted_after_their_days_also_those_of_routers_that_are_gone(
    tmp_path: Path,
) -> None:
    gone = Files(tmp_path / "gone.jsonl", HEADER, max_bytes=10_000, most=3, days=1.0)
    gone.write(line(0), BEGAN)
    gone.close()
    (tmp_path / "notes.jsonl").write_text("no recording\n")
    written = files(tmp_path, lines=1000)
    hours = 40
    for hour in range(hours):
        now = BEGAN + 3600.0 * hour
        written.write(line(hour), now)
        delete_old(tmp_path / "r.jsonl", 1.0, now)
        kept = [number for path in tmp_path.glob("r.jsonl*") for number in numbers(path)]
        assert hour in kept
        assert min(kept) >= hour - 24
    assert not (tmp_path / "gone.jsonl").exists()
    assert (tmp_path / "notes.jsonl").exists()
    assert min(kept) <= hours - 16  # whole files go, of 6 hours each
    written.end_old(now + DAY_S)
    delete_old(tmp_path / "r.jsonl", 1.0, now + 2 * DAY_S)
    assert names(tmp_path) == ["notes.jsonl"]


def test_a_file_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    written = files(folder)
    with pytest.raises(FileNotFoundError):
        written.write(line(1), BEGAN)
    folder.mkdir()
    written.write(line(2), BEGAN)
    written.close()
    assert numbers(folder / "r.jsonl") == [2]


FULL = """
import resource, sys
from pathlib import Path
from tests.router.recording.test_files import BEGAN, files, line

folder = Path(sys.argv[1])
written = files(folder, lines=1000)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
lost = 0
for number in range(100, 200):
    full = 120 <= number < 180  # meanwhile no file may grow
    another = full and number > 150
    size = 0 if another else (folder / "r.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4 if full else soft, hard))
    try:
        written.write(line(number), BEGAN + (86_400 if another else 0))
    except OSError:
        lost += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(lost)
"""


def test_a_full_disk_costs_new_lines_and_none_that_were_written(tmp_path: Path) -> None:
    """Neither half a line remains, nor do older files make room for what cannot be written. After
    a day in files of six hours the next file cannot begin either."""
    written = files(tmp_path, lines=1000)
    for number in range(50):
        written.write(line(number), BEGAN)
    written.close()
    assert header_of(tmp_path / "r.jsonl") is not None
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        env=os.environ,
    )
    assert ran.stdout == "60\n"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert names(tmp_path) == ["r.jsonl"]
    expected = [*range(50), *range(100, 120), *range(180, 200)]
    assert numbers(tmp_path / "r.jsonl") == expected
