"""Engines as a stream's migration sees them: each gives the same text, from any position that it is
asked to continue from. `Pandos` report token ids and resume; `Foreign` only continues text.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PIECES = ["Hel", "lo", " wörld", "", ' "quoted"\n\n', "data: ", "🙂", " end", "."]
TEXT = "".join(PIECES)
PROMPT_TOKENS = 11
HELD_BACK = 5  # with log-probabilities: a token that is reported before its text

Event = dict[str, Any]


def event(data: Event) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


@dataclass(slots=True)
class Engine:
    """Makes the whole answer to a request as bytes; `asked` are the requests so far."""

    path: str
    pando: bool = True
    pieces: list[str] = field(default_factory=lambda: list(PIECES))
    tells_usage: bool = True  # with every chunk, if it is not Pando's
    asked: list[Event] = field(default_factory=list)

    def count(self, name: bytes) -> int | None:
        """The numbers in the headers of the last answer."""
        if not self.pando:
            return None
        resumed = len(self.asked[-1].get("resume_token_ids", ())) or None
        return {
            b"x-pando-prompt-tokens": PROMPT_TOKENS,
            b"x-pando-cached-tokens": 10 - len(self.asked),
            b"x-pando-resumed-tokens": resumed,
        }[name]

    def answer(self, body: Event) -> bytes:
        self.asked.append(body)
        pieces = list(enumerate(self.pieces))
        prompt = PROMPT_TOKENS
        if not self.pando:
            begun = self._begun(body)
            while begun:
                _, piece = pieces.pop(0)
                assert begun.startswith(piece), "it must continue its own text"
                begun = begun.removeprefix(piece)
                prompt += 1
        if self.path == "/generate":
            return self._native(pieces, prompt, body)
        return self._openai(pieces, prompt, body)

    def _begun(self, body: Event) -> str:
        if "messages" in body:
            last = body["messages"][-1]
            if not body.get("continue_final_message"):
                return ""
            assert (last["role"], body["add_generation_prompt"]) == ("assistant", False)
            return str(last["content"])
        return str(body.get("prompt", body.get("text"))).removeprefix("P")

    def _openai(self, pieces: list[tuple[int, str]], prompt: int, body: Event) -> bytes:
        number = len(self.asked)
        common = {"id": f"id-{number}", "created": 1000 + number, "model": "m"}
        chat = self.path != "/v1/completions"
        scored = body.get("logprobs") is not None
        done = 0
        out = b""

        def chunk(
            says: Event,
            finish: str | None = None,
            ids: list[int] | None = None,
            scores: Sequence[int] = (),
        ) -> bytes:
            choice = {"index": 0, **says, "finish_reason": finish}
            if scored:
                tokens = [str(token) for token in scores]
                choice["logprobs"] = (
                    {"content": [{"token": token} for token in tokens], "refusal": None}
                    if chat
                    else {"tokens": tokens, "token_logprobs": list(scores)}
                )
            if self.pando and ids:
                choice["token_ids"] = ids
            usage = (
                {}
                if self.pando or not self.tells_usage
                else {"usage": counts(prompt, done, 10 - number)}
            )
            return event({**common, "choices": [choice], **usage})

        def text_of(piece: str) -> Event:
            return {"delta": {"content": piece}} if chat else {"text": piece}

        if chat:
            out += chunk({"delta": {"role": "assistant", "content": ""}})
        held: list[int] = []
        unscored: list[int] = []
        resumed = len(body.get("resume_token_ids", ()))
        if body.get("echo"):
            out += chunk({"text": "P"}, scores=() if resumed else [-1] * PROMPT_TOKENS)
        if resumed:  # repeated, in one event
            assert body["resume_token_ids"] == list(range(resumed))
            again = "".join(piece for _, piece in pieces[:resumed])
            done = resumed
            if again:
                out += chunk(text_of(again), ids=body["resume_token_ids"])
            pieces = pieces[resumed:]
        for token, piece in pieces:
            done += 1
            unscored.append(token)
            early = scored and resumed < HELD_BACK
            if not early or token != HELD_BACK:
                held.append(token)
            if early and token == HELD_BACK - 1:  # the next token came with it, but not its text
                held.append(HELD_BACK)
            if piece and token != len(self.pieces) - 1:
                out += chunk(text_of(piece), ids=held, scores=unscored)
                held, unscored = [], []
            elif piece:  # the last event of a piece reports its ids
                out += chunk(text_of(piece), scores=unscored)
                unscored = []
        out += chunk({"delta": {}} if chat else {"text": ""}, "stop", held)
        if (body.get("stream_options") or {}).get("include_usage"):
            out += event({**common, "choices": [], "usage": counts(prompt, done, 10 - number)})
        return out + b"data: [DONE]\n\n"

    def _native(self, pieces: list[tuple[int, str]], prompt: int, body: Event) -> bytes:
        text, ids, out = "", list[int](), b""
        resumed = len(body.get("resume_token_ids", ()))
        for token, piece in pieces:
            text, ids = text + piece, [*ids, token]
            last = token == len(self.pieces) - 1
            if len(ids) <= resumed:
                continue
            meta: Event = {
                "id": f"id-{len(self.asked)}",
                "finish_reason": {"type": "length", "length": len(ids)} if last else None,
                "prompt_tokens": prompt,
                "completion_tokens": len(ids),
                "cached_tokens": 10 - len(self.asked),
            }
            if body.get("return_logprob"):
                meta["output_token_logprobs"] = [[-1.0, id, None] for id in ids[resumed:]]
                meta["input_token_logprobs"] = [] if resumed else [[None, -1, None]]
            out += event({"text": text, "output_ids": ids, "meta_info": meta})
        return out + b"data: [DONE]\n\n"


def counts(prompt: int, completion: int, cached: int) -> Event:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
