"""Asks the base and each of its adapters one question at once: python -m examples.adapters.ask

Start it first: make up ARGS="--lora-modules pirate=examples/adapters/pirate --lora-modules
json=examples/adapters/json"
"""

import argparse
import asyncio

import openai


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:8000/v1")
    arguments.add_argument("question", nargs="?", default="What is the capital of France?")
    options = arguments.parse_args()
    async with openai.AsyncOpenAI(base_url=options.url, api_key="none") as client:
        names = [model.id async for model in client.models.list()]

        async def ask(name: str) -> str:
            answer = await client.chat.completions.create(
                model=name,
                messages=[{"role": "user", "content": options.question}],
                max_tokens=60,
                temperature=0,
            )
            return answer.choices[0].message.content or ""

        for name, answer in zip(names, await asyncio.gather(*map(ask, names)), strict=True):
            print(f"{name}\n  {answer}")


if __name__ == "__main__":
    asyncio.run(main())
