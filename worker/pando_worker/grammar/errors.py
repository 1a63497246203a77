"""GrammarError: raised while a grammar is compiled, and shown to the client."""


class GrammarError(Exception):
    """The grammar is invalid or too large. The message says where and why."""
