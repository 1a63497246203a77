"""What runs in the process: answers questions until the process that asks ends, or needs no more.

    python -m pando_fleet.http.body_process.answers MODULE

`MODULE` has the function that answers, `answer`.
"""

import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from pando_fleet.free_memory import keep_little_free_memory
from pando_fleet.http.body_process.frames import EndedError, receive, send

NICENESS = 5
"""Where cores are few, streams go on before a large body is read."""

Answer = Callable[[Any, bytes], tuple[object, bytes]]
"""From a question and a body to a value and bytes, such as another body."""


def answer_questions(answer: Answer) -> None:
    """The socket is the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the one that asks drains first
    os.nice(NICENESS)
    keep_little_free_memory()
    gc.freeze()
    gc.disable()  # while a body is read: its values have no cycles
    with socket.socket(fileno=0) as sock:
        try:
            while True:
                send(sock, *_outcome(answer, *receive(sock)))
                gc.collect()  # errors have, with all that their tracebacks hold
        except (EndedError, ConnectionError):
            return


def _outcome(answer: Answer, question: Any, body: bytes) -> tuple[object, bytes]:
    """The answer, or the exception that it raised."""
    try:
        return answer(question, body)
    except Exception as error:
        return error.with_traceback(None), b""


if __name__ == "__main__":
    answer_questions(importlib.import_module(sys.argv[1]).answer)
