"""GBNF, the grammar notation of llama.cpp, SGLang and xgrammar, as llguidance's Lark."""

import re

from llguidance import gbnf_to_lark as converter

_HEX_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


def gbnf_to_lark(text: str) -> str:
    """A grammar that is Lark already, by a line `%llguidance` or `start:`, is left as it is.

    Raises ValueError for a text that is neither.
    """
    if converter.is_lark_syntax(text):
        return text
    try:
        return converter.gbnf_to_lark(_HEX_ESCAPE.sub(_resolved, text))
    except Exception as error:  # the converter has no one type for what is wrong
        raise ValueError(f"not a GBNF grammar: {error}") from error


def _resolved(escape: re.Match[str]) -> str:
    r"""The character that \u or \U names, since the converter loses their zeros; ASCII, where a
    character may have a meaning of its own, stays an escape."""
    digits = escape[1] or escape[2]
    if digits is None:
        return escape[0]
    code = int(digits, 16)
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise ValueError(f"\\{escape[0][1]}{digits} is not a character")
    return f"\\x{code:02x}" if code < 0x80 else chr(code)
