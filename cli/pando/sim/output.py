"""The folder of a command's files: it gets all of them at the end, or none."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory


class OutputError(Exception):
    """The folder cannot be made; the message is one line."""


@contextmanager
def filled_at_the_end(output: Path) -> Iterator[Path]:
    """A folder inside `output`, whose files are moved to `output` when the block ends.

    An exception removes them, and each folder that was made for them.

    Raises OutputError before the block, OSError if the files cannot be moved.
    """
    made = [parent for parent in (output, *output.parents) if not parent.exists()]
    try:
        try:
            output.mkdir(parents=True, exist_ok=True)
            unfinished = TemporaryDirectory(prefix=".unfinished-", dir=output)
        except OSError as error:
            raise OutputError(f"{output}: {error.strerror}") from error
        with unfinished as folder:
            yield Path(folder)
            for file in Path(folder).iterdir():
                file.replace(output / file.name)
    except BaseException:
        with suppress(OSError):  # another command has written there
            for parent in made:
                parent.rmdir()
        raise
