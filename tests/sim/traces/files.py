"""Small traces on disk."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def zipped(path: Path) -> Path:
    """The same file compressed, under a name that does not show it."""
    target = path.with_name("zipped")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


def mooncake(at_ms: float, tokens: int, ids: list[int], output: int = 10, **more: Any) -> Any:
    lengths = {"input_length": tokens, "output_length": output}
    return {"timestamp": at_ms, **lengths, "hash_ids": ids, **more}


def equal_start(one: Any, other: Any) -> int:
    """How many leading items are equal."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def packed(keys: bytes) -> list[bytes]:
    return [keys[start : start + 8] for start in range(0, len(keys), 8)]
