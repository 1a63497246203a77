"""How often a model picks the fitting one of three tools, and whether each call fits its schema.

Run: python -m bench.tools.fitting --url http://127.0.0.1:8080/v1 --model MODEL, against `pando up`
or a worker. Each of 200 generated questions is asked in each mode, greedily: `tool_choice` auto,
required, a named tool, none, several calls in parallel, and required with strict tools. A call
that `max_tokens` cut is counted apart. Exits with 1 if a complete call is not valid.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import openai
from jsonschema import Draft202012Validator

from bench.tools.questions import Question, questions

MODES = ("auto", "required", "named", "none", "parallel", "strict")


@dataclass(frozen=True, slots=True)
class Settings:
    model: str
    max_tokens: int
    at_once: int


def asked(question: Question, mode: str) -> dict[str, Any]:
    """Fields of the request."""
    tools: list[dict[str, Any]] = list(question.tools)
    match mode:
        case "named":
            choice: Any = {"type": "function", "function": {"name": question.fitting}}
        case "auto" | "none":
            choice = mode
        case _:
            choice = "required"
    if mode == "strict":
        tools = [{**tool, "function": {**tool["function"], "strict": True}} for tool in tools]
    more = {"parallel_tool_calls": True} if mode == "parallel" else {}
    return {"tools": tools, "tool_choice": choice, **more}


def verdicts(question: Question, choice: Any) -> list[str]:
    """What an answer shows: each name is counted."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in question.tools}
    calls = choice.message.tool_calls or []
    was_cut = choice.finish_reason == "length"
    found = ["answers", *(["cut"] if was_cut else []), *(["several"] if len(calls) > 1 else [])]
    if not calls:
        return [*found, "text"]
    found += ["called", "fitting"] if calls[0].function.name == question.fitting else ["called"]
    for number, call in enumerate(calls):
        if was_cut and number == len(calls) - 1:
            continue
        found += ["calls", "valid"] if _is_valid(call.function, schemas) else ["calls"]
    return found


def _is_valid(function: Any, schemas: dict[str, Any]) -> bool:
    if function.name not in schemas:
        return False
    try:
        arguments = json.loads(function.arguments)
    except ValueError:
        return False
    return bool(Draft202012Validator(schemas[function.name]).is_valid(arguments))


async def measured(
    client: openai.AsyncOpenAI, settings: Settings, asks: Sequence[Question], mode: str
) -> Counter[str]:
    turns = asyncio.Semaphore(settings.at_once)
    counted: Counter[str] = Counter()

    async def ask(question: Question) -> None:
        async with turns:
            done = await client.chat.completions.create(
                model=settings.model,
                messages=[{"role": "user", "content": question.text}],
                max_tokens=settings.max_tokens,
                temperature=0,
                **asked(question, mode),
            )
        counted.update(verdicts(question, done.choices[0]))

    await asyncio.gather(*map(ask, asks))
    return counted


async def main(arguments: argparse.Namespace) -> int:
    client = openai.AsyncOpenAI(base_url=arguments.url, api_key="none", timeout=300)
    settings = Settings(arguments.model, arguments.max_tokens, arguments.at_once)
    asks = questions(arguments.questions, arguments.seed)
    print("| mode | called | picked the fitting tool | complete calls | valid | several | cut |")
    print("|---|---|---|---|---|---|---|")
    invalid = 0
    async with client:
        for mode in arguments.modes:
            n = await measured(client, settings, asks, mode)
            invalid += n["calls"] - n["valid"]
            share = f"{n['fitting']} of {n['called']}"
            row = (n["called"], share, n["calls"], n["valid"], n["several"], n["cut"])
            print(f"| {mode} | {' | '.join(map(str, row))} |", flush=True)
    return 1 if invalid else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    sys.exit(asyncio.run(main(parser.parse_args())))
