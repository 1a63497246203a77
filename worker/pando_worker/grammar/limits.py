"""How large a grammar may be, and how much work it may cause: the same bounds where it is checked
and where it runs."""

from llguidance import LLParserLimits

MAX_GRAMMAR_BYTES = 256 * 1024

LIMITS = LLParserLimits(
    verbose_errors=False,  # what is wrong, without the whole grammar and the parser's state
)
