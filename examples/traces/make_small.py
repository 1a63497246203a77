"""Makes small.jsonl, a trace to try the simulator with.

Run: python examples/traces/make_small.py > examples/traces/small.jsonl

Three assistants, each with a system prompt of its own, are asked by people who read the answer,
think, and ask on, often about a document that they have pasted; some open a conversation in the
same few seconds, after a reminder by mail. The
lines have Mooncake's form: an id for each block of 512 tokens, equal where all up to the block's
end is equal; and a `session_id`, as a turn waits for the answer before it. The same seed makes the
same file.
"""

import json
import random
from dataclasses import dataclass, field
from itertools import count

SEED = 7
BLOCK_TOKENS = 512
MINUTES = 2
CONVERSATIONS = 150
MAIL_AT_S, MAIL_FOR_S, MAIL_SHARE = 60.0, 10.0, 0.3
PASTED = 0.3  # of the questions come with a document
ASSISTANTS = ((0.5, 3_600), (0.35, 2_100), (0.15, 6_200))  # share, tokens of the system prompt
ON = 0.72  # that a person asks on after an answer
ANSWERED_PER_S = 60.0  # tokens, as people saw them come


@dataclass
class Conversation:
    """Its prompt, which grows with each turn, in tokens and names of whole blocks."""

    tokens: int
    blocks: list[int] = field(default_factory=list)

    def grow(self, tokens: int, names: "count[int]") -> None:
        self.tokens += tokens
        while len(self.blocks) < self.tokens // BLOCK_TOKENS:
            self.blocks.append(next(names))


def main() -> None:
    draw = random.Random(SEED)
    names = count()
    systems = [
        (share, tokens, [next(names) for _ in range(tokens // BLOCK_TOKENS)])
        for share, tokens in ASSISTANTS
    ]
    lines: list[tuple[float, str]] = []
    for number in range(CONVERSATIONS):
        if draw.random() < MAIL_SHARE:
            at_s = MAIL_AT_S + draw.uniform(0, MAIL_FOR_S)
        else:
            at_s = draw.uniform(0, MINUTES * 60)
        (_, tokens, blocks), *_ = draw.choices(systems, [share for share, *_ in systems])
        conversation = Conversation(tokens, list(blocks))
        while at_s < MINUTES * 60:
            asked = draw.lognormvariate(4.2, 0.6)
            if draw.random() < PASTED:
                asked += draw.lognormvariate(8.9, 0.7)
            conversation.grow(round(asked), names)
            answer = max(1, round(draw.lognormvariate(5.2, 0.6)))
            # What does not fill a block has a name that nobody else's has.
            rest = [next(names)] if conversation.tokens % BLOCK_TOKENS else []
            line = {
                "timestamp": round(at_s * 1000),
                "input_length": conversation.tokens,
                "output_length": answer,
                "hash_ids": conversation.blocks + rest,
                "session_id": number,
            }
            lines.append((at_s, json.dumps(line, separators=(",", ":"))))
            if draw.random() > ON:
                break
            conversation.grow(answer, names)
            at_s += answer / ANSWERED_PER_S + 1 + draw.expovariate(1 / 5)
    for _, text in sorted(lines):
        print(text)


if __name__ == "__main__":
    main()
