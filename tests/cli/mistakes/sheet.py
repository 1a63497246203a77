"""Makes each mistake, and writes what `pando` says to docs/mistakes.md.

Run: python -m tests.cli.mistakes.sheet [--check]. Each command runs in a fork of this process,
which has imported `pando` once; with --check nothing is written, and the exit code is 1 if the page
would change.
"""

import argparse
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pando.main import main as pando
from tests.cli.mistakes.commands import MISTAKES, ROOT, make_folder, parted

PAGE = ROOT / "docs/mistakes.md"
PATIENCE_S = 60.0
WIDTH = 600  # most letters of an answer on the page

HEAD = """# Mistakes at the command line

What `pando` says to them: one line on standard error, with the value and what would be right. The
exit code is 2 for wrong usage, 1 for a failure and 130 after Ctrl-C before the end. `up`, `worker`
and `router`, which run until Ctrl-C or SIGTERM, end with 0 once they serve. Servers say a mistake
in their log, as its only event of level error.
`python -m tests.cli.mistakes.sheet` makes each of these mistakes and writes this page; a test does
the same and compares.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


def answer(command: str, folder: Path) -> Answer:
    """Runs `pando COMMAND` in the folder. Raises TimeoutError if it goes on."""
    variables, words = parted(command)
    return _forked(lambda: _run(words, variables, folder))


def _run(words: list[str], variables: dict[str, str], folder: Path) -> None:
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("PANDO_", "KUBE"))]:
        del os.environ[name]
    os.environ.update(variables, COLUMNS="200", HF_HUB_OFFLINE="1")
    sys.argv = ["pando", *words]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pando(words)


def _forked(work: Callable[[], None]) -> Answer:
    pipes = [os.pipe(), os.pipe()]
    child = os.fork()
    if not child:
        os.setsid()
        for number, (_, end) in enumerate(pipes, start=1):
            os.dup2(end, number)
        code = 0
        try:
            work()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException as error:
            os.write(2, f"Traceback: {error!r}\n".encode())
            code = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    for _, end in pipes:
        os.close(end)
    texts = _read([start for start, _ in pipes], child)
    _, status = os.waitpid(child, 0)
    return Answer(os.waitstatus_to_exitcode(status), *texts)


def _read(pipes: list[int], child: int) -> list[str]:
    found = dict.fromkeys(pipes, b"")
    deadline, still = time.monotonic() + PATIENCE_S, list(pipes)
    while still:
        ready, _, _ = select.select(still, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError(f"it is no mistake, it goes on: {found}")
        for pipe in ready:
            chunk = os.read(pipe, 65536)
            found[pipe] += chunk
            if not chunk:
                still.remove(pipe)
                os.close(pipe)
    return [text.decode(errors="replace") for text in found.values()]


def answers() -> dict[str, Answer]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder(folder)
        made = {}
        for commands in MISTAKES.values():
            for command in commands:
                made[command] = answer(command, folder)
        return made


def page(made: dict[str, Answer]) -> str:
    parts = [HEAD]
    for title, commands in MISTAKES.items():
        rows = [
            f"| `{command}` | {made[command].code} | {_said(made[command])} |"
            for command in commands
        ]
        parts += [f"\n## {title}\n\n| command | exit | what it says |\n|---|---|---|", *rows]
    return "\n".join(parts) + "\n"


def _said(one: Answer) -> str:
    """What it says, without what differs between machines."""
    text = " ⏎ ".join(_events(one))
    text = re.sub(r"\b[\d.,]+ (GiB|MiB|GB|MB)\b", r"N \1", text)
    return _cell(text if len(text) <= WIDTH else f"{text[:WIDTH]} …")


def _events(one: Answer) -> list[str]:
    return [event for line in one.err.strip().splitlines() if (event := _event(line))]


def _event(line: str) -> str:
    """Of a log's line its event, if that is an error."""
    if not line.startswith("{"):
        return line.strip()
    record = json.loads(line)
    return str(record["event"]) if record["level"] == "error" else ""


def _cell(text: str) -> str:
    text = text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
    return re.sub(r"([*_`])", r"\\\1", text)


def _is_right(one: Answer) -> bool:
    is_line = len(_events(one)) == 1 and "Traceback" not in one.err
    return one.code in (1, 2) and not one.out and is_line


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    made = answers()
    text = page(made)
    wrong = [command for command, one in made.items() if not _is_right(one)]
    for command in wrong:
        print(f"not one line, or not 1 or 2: pando {command}: {made[command]}")
    if check:
        is_stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
        if is_stale:
            print("docs/mistakes.md is stale: python -m tests.cli.mistakes.sheet writes it")
        return 1 if is_stale or wrong else 0
    PAGE.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
