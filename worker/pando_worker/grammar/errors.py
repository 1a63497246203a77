"""Why a grammar cannot be followed: raised while it is compiled, shown to whoever sent it."""


class GrammarError(Exception):
    """The grammar is wrong, or too large. The message says where and how."""
