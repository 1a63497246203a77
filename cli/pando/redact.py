"""Keeps passwords inside URLs out of everything that is shown: logs, errors, tables."""

import re

_PASSWORD_IN_URL = re.compile(r"(\w://[^\s:/@]*):[^\s@]+@")


def redact(text: str) -> str:
    """The text with every `scheme://user:password@` as `scheme://user:***@`."""
    return _PASSWORD_IN_URL.sub(r"\1:***@", text)
