"""Writes every generated file; with --check it only lists those that are stale."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tools.generate import configuration, crd, endpoints, metrics, registries, scaling, values

Files = Iterable[tuple[Path, str]]

GENERATORS: tuple[Callable[[], Files], ...] = (
    crd.files,
    values.files,  # reads what crd wrote
    configuration.files,
    metrics.files,
    endpoints.files,
    registries.files,
    scaling.files,
)


def stale(files: Files) -> Iterator[tuple[Path, str]]:
    """The files that differ from their text, each with that text."""
    for path, text in files:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield path, text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a file is stale"
    )
    check = parser.parse_args(arguments).check
    found = []
    for generator in GENERATORS:
        # Each file is written before the next one is made, because some depend on earlier ones.
        for path, text in stale(generator()):
            found.append(path)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            print(f"{path} {'is stale: run `make generate`' if check else 'written'}")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
