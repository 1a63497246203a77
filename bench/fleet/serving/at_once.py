"""Some clients at once, each with one prompt of its own: the job of benchmarks that compare servers
in turns."""

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path

import click

from bench.fleet.serving.client import Client, Endpoint, Record

TEXT = Path(__file__).parents[2] / "texts/prose.txt"


@dataclass(frozen=True, slots=True)
class Job:
    """`clients` send one prompt each, of `words` words at random from TEXT."""

    clients: int
    words: int
    new_tokens: int

    @property
    def is_prefill(self) -> bool:
        return self.new_tokens == 1

    def run(self, url: str, model: str, seed: str) -> tuple[list[Record], float]:
        """What each client saw, and the seconds until the last one ended.

        Raises:
            ClickException: a request failed.
        """
        rng = random.Random(f"{seed} {self}")
        words = TEXT.read_text(encoding="utf-8").split()
        prompts = [" ".join(rng.choices(words, k=self.words)) for _ in range(self.clients)]
        started = time.perf_counter()
        records = asyncio.run(_send(url, model, prompts, self.new_tokens))
        seconds = time.perf_counter() - started
        for record in records:
            if record.error is not None:
                raise click.ClickException(f"{url}: {record.error} {record.error_detail}")
        return records, seconds


async def _send(url: str, model: str, prompts: list[str], new_tokens: int) -> list[Record]:
    extra = {"ignore_eos": True, "temperature": 0}
    client = Client(Endpoint(url, model, "completions", extra=extra), timeout_s=300)
    try:
        return await asyncio.gather(
            *(client.send([("user", text)], new_tokens) for text in prompts)
        )
    finally:
        await client.close()
