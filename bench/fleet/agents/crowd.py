"""Many agents at once, a new one for each that ends, and clients that give up beside them."""

import asyncio
import re
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import openai

from bench.fleet.agents.agent import CALLS, Agent, Call, names

RETRIES = 10
GIVE_UP_EVERY_S, GIVE_UP_AFTER_S = 5.0, 1.0
LOOK_S = 0.005
LONGEST_S = 300.0
"""Until a client gives up an answer; longer than the measurement."""

_LEFT = re.compile(r'^pando_router_queue_ends_total\{[^}]*end="client_left"[^}]*\} (\S+)', re.M)


@dataclass(slots=True)
class Seen:
    """
    Attributes:
        lost: what calls got instead of an answer, after the client's retries
        left_s: of each client that gave up while it waited in the router's queue, from then until
            the queue was without it
    """

    calls: list[Call] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)

    def within(self, begin_s: float, end_s: float) -> list[Call]:
        """Calls that were answered in this time."""
        return [call for call in self.calls if begin_s <= call.ended_s < end_s]


class Crowd:
    """`sessions` agents on the fleet at `url`, until a time; then their last calls end."""

    def __init__(self, url: str, sessions: int, until_s: float) -> None:
        self._url = url
        self._sessions = sessions
        self._until_s = until_s
        self._names = names("agent")
        self.seen = Seen()

    async def run(self) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{self._url}/v1", api_key="none", max_retries=RETRIES, timeout=LONGEST_S
        ) as client:
            model = (await client.models.list()).data[0].id
            agents = (self._agents(client, model) for _ in range(self._sessions))
            await asyncio.gather(*agents, self._give_up(client, model))

    async def _agents(self, client: openai.AsyncOpenAI, model: str) -> None:
        """One after the other."""
        while not self._is_over():
            agent = Agent(client, model, next(self._names))
            for number in range(CALLS):
                if self._is_over():
                    return
                try:
                    self.seen.calls.append(await agent.call(number))
                except openai.OpenAIError as error:
                    self.seen.lost.append(str(error))
                    break
                await agent.use_tool()

    def _is_over(self) -> bool:
        return time.monotonic() >= self._until_s

    async def _give_up(self, client: openai.AsyncOpenAI, model: str) -> None:
        """Now and then a new session's first call ends before its answer."""
        for name in names("leaves"):
            await asyncio.sleep(GIVE_UP_EVERY_S)
            if self._is_over():
                return
            before = await asyncio.to_thread(self._left)
            call = asyncio.create_task(Agent(client, model, name).call(0))
            await asyncio.wait([call], timeout=GIVE_UP_AFTER_S)
            if not call.cancel():
                continue  # it was answered
            gone_s = time.monotonic()
            await asyncio.wait([call])
            while time.monotonic() < gone_s + GIVE_UP_EVERY_S:
                if await asyncio.to_thread(self._left) > before:
                    self.seen.left_s.append(time.monotonic() - gone_s)
                    break
                await asyncio.sleep(LOOK_S)

    def _left(self) -> float:
        return sum(self._counted(_LEFT))

    def waiting(self) -> float:
        """Requests that the router has, waiting or not."""
        return sum(self._counted(re.compile(r"^pando_router_requests_in_flight (\S+)", re.M)))

    def _counted(self, line: re.Pattern[str]) -> Iterator[float]:
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return (float(value) for value in line.findall(text))
