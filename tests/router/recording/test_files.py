"""The files of a recording on a real disk."""

from pathlib import Path

import pytest

from pando_router.recording.files import Files

HEADER = b"header\n"


def files(folder: Path, *, most: int = 3, max_bytes: int = 40) -> Files:
    return Files(folder / "r.jsonl", HEADER, max_bytes=max_bytes, most=most)


def lines(path: Path) -> list[bytes]:
    first, *rest = path.read_bytes().splitlines()
    assert first == HEADER.strip()
    return rest


def test_files_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    written = files(tmp_path)
    for number in range(20):
        written.write(b"line %05d\n" % number)  # 11 bytes: 3 fit behind the header
    written.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.jsonl", "r.jsonl.1", "r.jsonl.2"]
    assert all(path.stat().st_size <= 40 for path in tmp_path.iterdir())
    kept = [
        line for name in ("r.jsonl.2", "r.jsonl.1", "r.jsonl") for line in lines(tmp_path / name)
    ]
    assert kept == [b"line %05d" % number for number in range(12, 20)]


def test_a_single_file_is_started_again(tmp_path: Path) -> None:
    written = files(tmp_path, most=1)
    for number in range(5):
        written.write(b"line %05d\n" % number)
    written.close()
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]
    assert lines(tmp_path / "r.jsonl") == [b"line 00003", b"line 00004"]


def test_a_recording_from_before_is_kept_as_an_older_file(tmp_path: Path) -> None:
    for text in (b"first\n", b"second\n"):
        written = files(tmp_path)
        written.write(text)
        written.close()
    assert lines(tmp_path / "r.jsonl") == [b"second"]
    assert lines(tmp_path / "r.jsonl.1") == [b"first"]


def test_a_file_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    written = files(folder)
    with pytest.raises(FileNotFoundError):
        written.write(b"lost\n")
    folder.mkdir()
    written.write(b"kept\n")
    written.close()
    assert lines(folder / "r.jsonl") == [b"kept"]
