"""Request ids: the client's if it is valid, otherwise a new one."""

import random
import re
from collections.abc import Iterable

_SANE = re.compile(rb"[\x21-\x7e]{1,128}")  # printable ASCII


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"x-request-id" and _SANE.fullmatch(value):
            return value.decode()
    return random.randbytes(16).hex()  # unique is enough: the id grants nothing
