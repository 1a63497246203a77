"""The cost of constrained decoding: compiling a grammar, a mask, and what jump-forward saves.

Run: python -m bench.engine.grammar. Uses the included model's tokenizer and a byte-level BPE of
131,072 tokens, trained here on the Python sources of this environment. Each grammar is followed
along one output that fits it, as the tokenizer splits it; every token costs one mask and one
accept. Then the masks of 64 requests at different positions are computed, in sequence and by two
threads. All times are CPU times, so that a busy machine does not matter.
"""

import argparse
import json
import statistics
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.grammar.grammar import Grammar
from pando_worker.grammar.masks import MaskThreads
from pando_worker.parsers.registry import TOOL_FORMATS
from pando_worker.parsers.tools import read_tool_use
from pando_worker.server.jobs.constraints import grammar_of

SHIPPED = Path(__file__).parents[2] / "examples/models/pando-tiny"
VOCAB = 131_072
CORPUS_CHARS = 60_000_000
BATCH = 64
COMPILES = 15
WALKS = 10

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "pattern": r"^[a-z.]+@[a-z]+\.[a-z]{2,4}$"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "address": {"$ref": "#/$defs/address"},
    },
    "required": ["name", "age", "email", "tags", "address"],
    "additionalProperties": False,
    "$defs": {
        "address": {
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "city": {"type": "string"},
                "kind": {"enum": ["home", "work", "other"]},
            },
            "required": ["street", "city", "kind"],
            "additionalProperties": False,
        }
    },
}
ADA = {
    "name": "Ada Lovelace",
    "age": 36,
    "email": "ada@engine.org",
    "tags": ["mathematics", "machines that weave numbers"],
    "address": {"street": "12 St James's Square", "city": "London", "kind": "home"},
}
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{i}", "parameters": PERSON, "strict": True}}
    for i in range(10)
]


@dataclass(frozen=True)
class Case:
    name: str
    constraint: dict[str, Any]
    output: str


def cases() -> Iterator[Case]:
    person = json.dumps(ADA)
    yield Case("any JSON object", {"response_format": {"type": "json_object"}}, person)
    yield Case("JSON schema", {"guided_json": PERSON}, person)
    compact = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    schema = PERSON | {"x-guidance": compact}
    yield Case("JSON schema, white space fixed", {"guided_json": schema}, person)
    calls = {"tool_use": read_tool_use(TOOLS, "required"), "tool_format": TOOL_FORMATS["hermes"]}
    call = f'<tool_call>\n{{"name": "tool_7", "arguments": {person}}}\n</tool_call>'
    yield Case("a call of one of ten tools", calls, call)
    email = {"regex": r"[a-z.]{1,20}@[a-z]{1,20}\.(com|org|net)"}
    yield Case("regular expression", email, "ada.lovelace@analytical.org")
    choices = {"guided_choice": [f"choice number {i}" for i in range(1000)]}
    yield Case("1,000 choices", choices, "choice number 789")
    exponential = {"regex": "(a|b|c)*a(a|b|c){200}"}
    yield Case("hostile: 2^200 states", exponential, "abc" * 100)
    prose = {"regex": "(?s:.*)"}
    yield Case("any text", prose, "It was the best of times. " * 4)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shipped = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
        for title, tokenizer, directory in (
            ("pando-tiny", shipped, SHIPPED),
            ("trained here", *trained(Path(folder))),
        ):
            vocab_size = tokenizer.get_vocab_size()
            print(f"\n{title}: {vocab_size} tokens\n")
            print("| grammar | compile ms | copy µs | mask µs, mean | worst | accept µs | tokens |"
                  " of them forced |")  # fmt: skip
            print("|---|---|---|---|---|---|---|---|")
            with closing(GrammarCompiler(directory, vocab_size, [0])) as compiler:
                started = time.process_time()
                compiler.compile('start: "a"').result()
                loaded = time.process_time() - started
                for case in cases():
                    print(row(case, compiler, tokenizer))
                print(
                    f"\n| masks of {BATCH} rows | in turn, ms | two threads, ms | busier one, ms |"
                )
                print("|---|---|---|---|")
                for case in cases():
                    print(batch_row(case, compiler, tokenizer))
            print(f"\nThe first grammar also loads the tokenizer: {loaded:.2f} s.")


def row(case: Case, compiler: GrammarCompiler, tokenizer: Tokenizer) -> str:
    text = grammar_of(**case.constraint)
    assert text is not None
    compiles, copies, masks, accepts = [], [], [], []
    for i in range(COMPILES):
        started = time.process_time()  # it runs on a thread of the compiler
        compiler.compile(text + " " * i).result()  # none of these is cached
        compiles.append(time.process_time() - started)
    words = np.zeros(-(-compiler.vocab_size // 32), np.int32)
    tokens = tokenizer.encode(case.output, add_special_tokens=False).ids
    for _ in range(WALKS):
        started = time.thread_time()
        grammar = compiler.compile(text).result()
        copies.append(time.thread_time() - started)
        for token in tokens:
            started = time.thread_time()
            grammar.fill_mask(words)
            filled = time.thread_time()
            assert grammar.accept(token), (case.name, tokenizer.id_to_token(token))
            accepts.append(time.thread_time() - filled)
            masks.append(filled - started)
    forced = count_forced(compiler.compile(text).result(), tokens)
    return (
        f"| {case.name} | {statistics.median(compiles) * 1e3:.2f} |"
        f" {statistics.median(copies) * 1e6:.0f} | {statistics.mean(masks) * 1e6:.0f} |"
        f" {max(masks) * 1e6:.0f} | {statistics.mean(accepts) * 1e6:.1f} | {len(tokens)} |"
        f" {forced / len(tokens):.0%} |"
    )


def batch_row(case: Case, compiler: GrammarCompiler, tokenizer: Tokenizer) -> str:
    """Medians over the steps of requests that began at different times."""
    text = grammar_of(**case.constraint)
    assert text is not None
    tokens = tokenizer.encode(case.output, add_special_tokens=False).ids
    steps = len(tokens) // 2
    spread = len(tokens) - steps
    mask = np.full((BATCH, -(-compiler.vocab_size // 32)), -1, np.int32)
    turns, totals, busier = [], [], []
    for threads in (1, 2):
        filling = MaskThreads(threads)
        # None of these is cached: the copies of one grammar share computed masks.
        fresh = text + " " * (COMPILES + threads)
        grammars = [compiler.compile(fresh).result() for _ in range(BATCH)]
        for index, grammar in enumerate(grammars):
            assert all(map(grammar.accept, tokens[: index % spread]))
        for step in range(steps):
            before = cpu_of_threads()
            filling.fill([(grammar, index) for index, grammar in enumerate(grammars)], mask)
            after = cpu_of_threads()
            spent = [after[thread] - before.get(thread, 0) for thread in after]
            if threads == 1:
                turns.append(sum(spent))
            else:
                totals.append(sum(spent))
                busier.append(max(spent))
            for index, grammar in enumerate(grammars):
                assert grammar.accept(tokens[index % spread + step])
    columns = " | ".join(f"{statistics.median(each) / 1e6:.2f}" for each in (turns, totals, busier))
    return f"| {case.name} | {columns} |"


def cpu_of_threads() -> dict[str, int]:
    """Nanoseconds that each thread of this process has run, by its id; Linux only."""
    tasks = Path("/proc/self/task").iterdir()
    spent = {task.name: int((task / "schedstat").read_text().split()[0]) for task in tasks}
    # For a running thread, that file is not up to date.
    return spent | {str(threading.get_native_id()): time.thread_time_ns()}


def count_forced(grammar: Grammar, tokens: list[int]) -> int:
    """How many of the output's tokens jump-forward provides."""
    forced, at = 0, 0
    while at < len(tokens):
        ahead = grammar.fast_forward()
        forced += len(ahead)
        taken = ahead or [tokens[at]]
        assert taken == tokens[at : at + len(taken)] and all(map(grammar.accept, taken))
        at += len(taken)
    return forced


def trained(folder: Path) -> tuple[Tokenizer, Path]:
    """A byte-level BPE of VOCAB tokens in a model directory."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")
    return tokenizer, folder


def corpus() -> Iterator[str]:
    left = CORPUS_CHARS
    for root in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")):
        for path in sorted(Path(root).rglob("*.py")):
            if left > 0:
                text = path.read_text(errors="ignore")
                left -= len(text)
                yield text


if __name__ == "__main__":
    main()
