"""How large a grammar may be and how much work it may cause, both where it is checked and where it
runs."""

import threading
from concurrent.futures import ThreadPoolExecutor

from llguidance import LLParserLimits

MAX_GRAMMAR_CHARS = 256 * 1024

LIMITS = LLParserLimits(
    initial_lexer_fuel=300_000,  # of compiling, about a second; what is of use takes milliseconds
    step_lexer_fuel=100_000,  # of one mask, about 7 ms
    verbose_errors=False,  # what is wrong, without the whole grammar and the parser's state
)

# A hundredth of that, and texts of some milliseconds: what takes more is costly.
TRIAL_CHARS = 16 * 1024
TRIAL_LIMITS = LLParserLimits(
    initial_lexer_fuel=3_000, step_lexer_fuel=10_000, verbose_errors=False
)

_STACK_BYTES = 256 * 1024 * 1024


def compiler_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Threads to compile and check grammars on; llguidance does not hold the GIL meanwhile.

    Their stacks are deep, of which only what is used takes memory: llguidance follows references
    by recursion, and a chain of them as long as MAX_GRAMMAR_CHARS allows overruns an ordinary
    stack, which ends the process.
    """
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    before = threading.stack_size(_STACK_BYTES)
    try:
        barrier = threading.Barrier(count + 1)  # so that no thread is taken twice
        for _ in range(count):
            pool.submit(barrier.wait)
        barrier.wait()
    finally:
        threading.stack_size(before)
    return pool
