"""Answers for `test_body_process.py`, in the process that it starts."""

import os
import signal
import threading

from pando_fleet.http.errors import ApiError


def answer(question: str, body: bytes) -> tuple[object, bytes]:
    match question:
        case "size":
            return len(body), b""
        case "backwards":
            return None, body[::-1]
        case "who":
            return os.getpid(), b""
        case "refuse":
            raise ApiError(422, "no", kind="k", param="p", code="c", headers={"a": "b"})
        case "fail":
            raise ZeroDivisionError("by nothing")
        case "never":
            threading.Event().wait()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(question)
