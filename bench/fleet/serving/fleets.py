"""`pando up` with some options, as a user starts it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import click

from pando.up.free_port import free_port


@contextmanager
def pando_up(options: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a fleet that is ready; it ends with the block.

    Raises click.ClickException with what the command wrote if it ends before.
    """
    port = free_port("127.0.0.1")
    with (
        tempfile.TemporaryFile("w+") as log_file,
        subprocess.Popen(
            [sys.executable, "-m", "pando", "up", "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=log_file,
            env={**os.environ, **(environment or {})},
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            if not any("is served at" in line for line in process.stdout):
                log_file.seek(0)
                raise click.ClickException(f"pando up ended: {log_file.read()}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.stdout.read()
