"""Which operators of llguidance's Lark a client's grammar may use.

Every other pattern is refused when it has taken the work of `grammar.limits.LIMITS`. But llguidance
looks at that limit only between the derivatives of a terminal, and one derivative of an
intersection multiplies the alternatives of its parts: two patterns of 50 characters take minutes,
which nothing can end, on a thread that others wait for. A complement of alternatives with
complements is an intersection, too.
"""

import re

_OPERATOR = re.compile(
    r"""
      (?: \#|// ) [^\n]*
    | " (?: [^"\\] | \\. )* "
    | / (?: [^/\\] | \\. )+ /
    | < [^<>\s]+ >  # a special token
    | (?P<and> & )
    | (?P<not> ~ ) (?! \s* [+-]?\d )  # otherwise it repeats what stands before it
    """,
    re.VERBOSE | re.DOTALL,
)


def intersects(text: str) -> bool:
    """Whether a grammar may contain an intersection: `&`, or `~` more than once."""
    found = [match.lastgroup for match in _OPERATOR.finditer(text) if match.lastgroup]
    return "and" in found or found.count("not") > 1
