"""Removes passwords in URLs from all output: logs, errors, tables."""

import re

_PASSWORD_IN_URL = re.compile(r"(\w://[^\s:/@]*):[^\s@]+@")


def redact(text: str) -> str:
    """Replaces every `scheme://user:password@` with `scheme://user:***@`."""
    return _PASSWORD_IN_URL.sub(r"\1:***@", text)
