"""A process ends with the one that started it, also if that has ended before it is asked."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pando_worker.parent import end_with_parent
from tests.waiting import until

_PARENT = """
import sys
from multiprocessing import get_context
from pathlib import Path
from tests.worker.test_parent import child
arguments = Path(sys.argv[1]), sys.argv[2] == "early"
process = get_context("spawn").Process(target=child, args=arguments)
process.start()
process.join()
"""


def child(folder: Path, is_early: bool) -> None:
    """Asks to end with its parent once that is alive or gone, and would then go on for ever."""
    if is_early:
        end_with_parent()
    (folder / "pid.new").write_text(str(os.getpid()))
    (folder / "pid.new").rename(folder / "pid")
    if not is_early:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        end_with_parent()
    while True:
        time.sleep(60)


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_process_ends_with_its_parent(tmp_path: Path, when: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", _PARENT, str(tmp_path), when]
    with subprocess.Popen(words, env=environment) as parent:
        until((tmp_path / "pid").exists, "the child runs")
        process = psutil.Process(int((tmp_path / "pid").read_text()))
        parent.send_signal(signal.SIGKILL)
    until(lambda: not process.is_running(), "the child has ended")
