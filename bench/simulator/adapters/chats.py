"""Conversations of people with assistants that are adapters of one model.

Each adapter has a system prompt of its own, which all of its conversations begin with. People come
at random moments; each talks to one assistant, chosen by Zipf's law, reads an answer and writes
again. Lengths are spread evenly between bounds that are stated here.
"""

import random
from collections.abc import Iterator

import numpy as np

from pando_sim.request import Request
from pando_sim.traces.adapters import Popularity, with_adapters
from pando_sim.traces.prompts import BlockPrompt

BLOCK_TOKENS = 64
SYSTEM_BLOCKS = (4, 24)
MESSAGE_BLOCKS = (1, 8)
ANSWER_TOKENS = (50, 250)
MOST_TURNS = 6
PAUSE_S = 8.0  # mean, between an answer and the next message
_OWN = 1 << 40  # block ids of conversations begin here, those of adapters below


def chats(conversations: int, per_s: float, popularity: Popularity) -> Iterator[Request]:
    """Requests by time; those of a conversation wait for each other's answers.

    Args:
        per_s: conversations that begin a second
    """
    draw = random.Random(popularity.seed)
    at_s, found = 0.0, list[Request]()
    for number in range(conversations):
        at_s += draw.expovariate(per_s)
        found += _conversation(number, at_s, draw)
    order = sorted(found, key=lambda request: (request.at_s, request.number))
    places = {request.number: place for place, request in enumerate(order)}
    for request, adapted in zip(order, with_adapters(order, popularity), strict=True):
        rank = popularity.names.index(adapted.adapter)
        after = None if request.after is None else places[request.after]
        yield _request(adapted, places[request.number], after, _system(rank))


def _conversation(number: int, at_s: float, draw: random.Random) -> Iterator[Request]:
    """Without the system prompt."""
    blocks = list[int]()
    for turn in range(draw.randint(1, MOST_TURNS)):
        pause_s = draw.expovariate(1 / PAUSE_S) if turn else 0.0
        blocks += _fresh(number, len(blocks), draw.randint(*MESSAGE_BLOCKS))
        output = draw.randint(*ANSWER_TOKENS)
        at_s += pause_s
        yield Request(
            number=MOST_TURNS * number + turn,
            at_s=at_s,
            prompt=_prompt(blocks),
            output_tokens=output,
            session=f"{number}",
            after=MOST_TURNS * number + turn - 1 if turn else None,
            pause_s=pause_s,
        )
        blocks += _fresh(number, len(blocks), -(-output // BLOCK_TOKENS))


def _fresh(conversation: int, start: int, count: int) -> range:
    first = _OWN + (conversation << 16) + start
    return range(first, first + count)


def _system(rank: int) -> list[int]:
    """The blocks of an adapter's system prompt, of a length of its own."""
    count = random.Random(rank).randint(*SYSTEM_BLOCKS)
    return [(rank << 16) + block for block in range(count)]


def _request(adapted: Request, number: int, after: int | None, system: list[int]) -> Request:
    assert isinstance(adapted.prompt, BlockPrompt)
    return Request(
        number=number,
        at_s=adapted.at_s,
        prompt=_prompt([*system, *adapted.prompt.ids.tolist()]),
        output_tokens=adapted.output_tokens,
        session=adapted.session,
        adapter=adapted.adapter,
        after=after,
        pause_s=adapted.pause_s,
    )


def _prompt(blocks: list[int]) -> BlockPrompt:
    ids = np.array(blocks, dtype=np.uint64)
    return BlockPrompt(ids, BLOCK_TOKENS * len(blocks), BLOCK_TOKENS)
