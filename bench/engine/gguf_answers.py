"""Greedy answers to one GGUF file by Pando and by llama.cpp, and what explains each difference.

Run: python -m bench.engine.gguf_answers --llama-cpp VENV/bin/python
VENV has the package `xllamacpp`, llama.cpp's server, and nothing of Pando: its binaries bring an
OpenMP of their own. Both answer the same token ids, one request at a time.
"""

import json
import math
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

import click

from bench.fleet.serving.gguf_servers import llama_cpp as serve_by_llama_cpp
from bench.fleet.serving.gguf_servers import pando_worker
from pando_worker.models.loading.hub import resolve_model
from pando_worker.server.machine import machine

TOP = 5  # log-probabilities that are compared at each token

QUESTIONS = (
    "What is the capital of France?",
    "Name three primary colors.",
    "Write a haiku about the sea.",
    "How many days are there in a leap year?",
    "What is the boiling point of water in Celsius?",
    "Explain what a hash table is in one paragraph.",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' into Spanish.",
    "What is 17 plus 25?",
    "List the planets of the solar system in order.",
    "Give me a recipe for pancakes.",
    "What does HTTP stand for?",
    "Why is the sky blue?",
    "Write a Python function that reverses a string.",
    "What is the largest ocean on Earth?",
    "Describe a sunset in two sentences.",
    "What is photosynthesis?",
    "Tell me a short story about a fox.",
    "What are the first five prime numbers?",
    "How do I boil an egg?",
    "What is the difference between a list and a tuple in Python?",
    "Name a famous painting by Leonardo da Vinci.",
    "What is the speed of light?",
    "Write a polite email asking for a day off.",
    "What is machine learning?",
    "Give three tips for sleeping better.",
    "Which language is spoken in Brazil?",
    "What is the square root of 144?",
    "Summarize the plot of Cinderella.",
    "What is the chemical symbol for gold?",
    "How does a bicycle stay upright?",
    "Write a limerick about a cat.",
)


@dataclass(frozen=True, slots=True)
class Answer:
    tokens: Sequence[int]
    tops: Sequence[dict[int, float]]  # at each of the tokens, the best ones' log-probabilities


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which two answers differ. Margins are in nats, as log-probabilities are.

    Attributes:
        shared: tokens before it
        pando_margin: by which Pando prefers its own token to llama.cpp's
        llama_cpp_margin: by which llama.cpp prefers its own to Pando's
    """

    question: str
    shared: int
    pando_margin: float
    llama_cpp_margin: float

    @property
    def swing(self) -> float:
        """By how much the two engines disagree on the margin."""
        return self.pando_margin + self.llama_cpp_margin


@click.command(help=__doc__)
@click.option("--llama-cpp", required=True, help="the Python that has xllamacpp")
@click.option("--model", default="smollm2", show_default=True, help="as pando worker takes it")
@click.option("--tokens", default=96, show_default=True, help="of an answer, at most")
@click.option("--threads", default=2, show_default=True)
@click.option("--questions", default=len(QUESTIONS), show_default=True, help="the first so many")
def main(llama_cpp: str, model: str, tokens: int, threads: int, questions: int) -> None:
    asked = QUESTIONS[:questions]
    [file, *_] = sorted(resolve_model(model).glob("*.gguf"))
    with pando_worker(model, threads) as server:
        ours = server.url
        prompts = [_prompt(ours, question) for question in asked]
        mine = [_ask_pando(ours, prompt, tokens) for prompt in prompts]
    with serve_by_llama_cpp(llama_cpp, file.resolve(), threads, slots=1, context=4096) as server:
        peer = server.url
        alike = [_llama_prompt(peer, q) == p for q, p in zip(asked, prompts, strict=True)]
        theirs = [_ask_llama_cpp(peer, prompt, tokens) for prompt in prompts]
    click.echo(f"{file.name}, {machine('cpu', 1)}, {threads} threads, xllamacpp of {llama_cpp},")
    click.echo(f"torch {version('torch')}; {tokens} tokens at most\n")
    click.echo(_report(asked, mine, theirs, sum(alike)))


def _report(
    asked: Sequence[str], mine: Sequence[Answer], theirs: Sequence[Answer], alike: int
) -> str:
    pairs = list(zip(asked, mine, theirs, strict=True))
    swings = sorted(swing for _, a, b in pairs for swing in _swings(a, b))
    margins = [margin for answer in mine for margin in _margins(answer)]
    found = [difference for pair in pairs if (difference := _difference(*pair))]
    return "\n".join(
        [
            f"Prompts with the same token ids: {alike} of {len(asked)}.",
            f"Answers with the same token ids: {len(asked) - len(found)} of {len(asked)}.",
            f"On the margin of the best token over the second the two disagree by"
            f" {median(swings):.3f} in the median of {len(swings)} shared tokens,"
            f" {swings[int(len(swings) * 0.99)]:.3f} at the 99th percentile, {swings[-1]:.3f} at"
            f" most. The margin itself is {median(margins):.2f} in the median.",
            "",
            "| question | same tokens before | margin in Pando | in llama.cpp | disagreement |",
            "|---|---|---|---|---|",
            *(
                f"| {d.question} | {d.shared} | {d.pando_margin:.3f} | {d.llama_cpp_margin:.3f}"
                f" | {d.swing:.3f}{'' if d.swing <= swings[-1] else ', NOT explained'} |"
                for d in found
            ),
        ]
    )


def _difference(question: str, mine: Answer, theirs: Answer) -> Difference | None:
    shared = _shared(mine, theirs)
    if shared == len(mine.tokens) == len(theirs.tokens):
        return None
    if shared in (len(mine.tokens), len(theirs.tokens)):
        raise click.ClickException(f"{question!r}: one answer ends where the other goes on")
    a, b = mine.tokens[shared], theirs.tokens[shared]
    ours, others = mine.tops[shared], theirs.tops[shared]
    return Difference(
        question,
        shared,
        ours[a] - ours.get(b, -math.inf),
        others[b] - others.get(a, -math.inf),
    )


def _shared(mine: Answer, theirs: Answer) -> int:
    pairs = zip(mine.tokens, theirs.tokens, strict=False)
    shortest = min(len(mine.tokens), len(theirs.tokens))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shortest)


def _swings(mine: Answer, theirs: Answer) -> Iterator[float]:
    """Over the tokens before the first difference."""
    for ours, others in zip(mine.tops, theirs.tops, strict=False):
        second, first = sorted(ours, key=ours.__getitem__)[-2:]
        if second not in others:  # both list but the best
            continue
        if max(others, key=others.__getitem__) != first:
            return
        yield abs((ours[first] - ours[second]) - (others[first] - others[second]))


def _margins(answer: Answer) -> Iterator[float]:
    for top in answer.tops:
        first, second, *_ = sorted(top.values(), reverse=True)
        yield first - second


def _prompt(url: str, question: str) -> list[int]:
    body = {"messages": [{"role": "user", "content": question}], "add_generation_prompt": True}
    tokens: list[int] = _post(f"{url}/tokenize", body)["tokens"]
    return tokens


def _ask_pando(url: str, prompt: list[int], tokens: int) -> Answer:
    body = {
        "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens},
        "return_logprob": True,
        "top_logprobs_num": TOP,
    }
    answer = _post(f"{url}/generate", body)
    tops = answer["meta_info"]["output_top_logprobs"]
    return Answer(answer["output_ids"], [{id: score for score, id, _ in top} for top in tops])


def _llama_prompt(url: str, question: str) -> list[int]:
    body = {"messages": [{"role": "user", "content": question}]}
    text = _post(f"{url}/apply-template", body)["prompt"]
    tokens: list[int] = _post(f"{url}/tokenize", {"content": text, "parse_special": True})["tokens"]
    return tokens


def _ask_llama_cpp(url: str, prompt: list[int], tokens: int) -> Answer:
    body = {
        "prompt": prompt,
        "temperature": 0,
        "n_predict": tokens,
        "n_probs": TOP,
        "return_tokens": True,
        "cache_prompt": False,
    }
    answer = _post(f"{url}/completion", body)
    found = answer["completion_probabilities"]
    tops = [{one["id"]: one["logprob"] for one in each["top_logprobs"]} for each in found]
    return Answer([each["id"] for each in found], tops)


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
