"""How large a grammar may be and how much work it may cause, when it is checked and when it
runs."""

import threading
from concurrent.futures import ThreadPoolExecutor

from llguidance import LLParserLimits

MAX_GRAMMAR_CHARS = 256 * 1024

LIMITS = LLParserLimits(
    initial_lexer_fuel=300_000,  # to compile: about a second; useful grammars need milliseconds
    step_lexer_fuel=100_000,  # per mask: about 7 ms
    verbose_errors=False,  # the error alone, without the whole grammar and the parser's state
)

# A hundredth of that, and texts that take a few milliseconds. Grammars above this are expensive.
TRIAL_CHARS = 16 * 1024
TRIAL_LIMITS = LLParserLimits(
    initial_lexer_fuel=3_000, step_lexer_fuel=10_000, verbose_errors=False
)

_STACK_BYTES = 256 * 1024 * 1024


def compiler_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Threads that compile and check grammars; llguidance releases the GIL.

    They get deep stacks, because llguidance follows references by recursion: a chain as long as
    MAX_GRAMMAR_CHARS allows would overflow an ordinary stack and kill the process. Only the used
    part of a stack takes memory.
    """
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    before = threading.stack_size(_STACK_BYTES)
    try:
        barrier = threading.Barrier(count + 1)  # a busy thread takes no second job
        for _ in range(count):
            pool.submit(barrier.wait)
        barrier.wait()
    finally:
        threading.stack_size(before)
    return pool
