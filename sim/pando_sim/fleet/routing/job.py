"""`Job`: a request from its arrival at a router to its end."""

from dataclasses import dataclass
from math import nan

import numpy as np

from pando_router.core.route import Route
from pando_router.core.tries import Tries
from pando_sim.adapters import identity_of
from pando_sim.records import Outcome, Served
from pando_sim.request import Request
from pando_sim.worker.stay import Stay
from pando_worker.messages import Generate, SamplingParams

MOST_SEEDS = 2**30


@dataclass(slots=True, eq=False)
class Job:
    request: Request
    arrival_s: float
    keys: bytes
    prompt_tokens: int
    tries: Tries
    may_be_held_back: bool = True  # by its session, while others fill the memory
    tries_made: int = 0
    is_lost: bool = False  # the last try, with its replica
    route: Route | None = None  # of the last try
    placed_s: float = nan
    stay: Stay | None = None
    first_s: float = nan
    last_s: float = nan  # the last token of a lost stay
    cached_tokens: int = 0  # of the prompt, at the last replica that answered
    output: int = 0  # tokens that earlier stays produced
    longest_gap_s: float = 0.0
    retry_after_s: float = nan  # of its refusal

    def command(self) -> Generate:
        """What to ask of its next replica: after a loss, to continue the output so far."""
        tokens = self.request.prompt.tokens()
        # A separate token range, which no prompt of a trace continues.
        seed = 2**31 - 1 - self.request.number % MOST_SEEDS
        if self.output:
            tokens = np.concatenate((tokens, np.full(self.output, seed, dtype=np.int32)))
        return Generate(
            rid=f"{self.request.number}.{self.tries_made}",
            input_ids=tokens,  # type: ignore[arg-type]  # it is copied into an array anyway
            num_output=self.output,
            adapter=identity_of(self.request.adapter),
            sampling=SamplingParams(max_new_tokens=self.request.output_tokens, seed=seed),
        )

    def keep(self, stay: Stay) -> None:
        """Adds the results of a stay that is over or lost."""
        if stay.tokens:
            if self.output:
                self.longest_gap_s = max(self.longest_gap_s, stay.first_s - self.last_s)
            self.longest_gap_s = max(self.longest_gap_s, stay.longest_gap_s)
            self.output += stay.tokens
            self.last_s = stay.last_s

    def served(self, end_s: float, outcome: Outcome) -> Served:
        route = self.route
        return Served(
            number=self.request.number,
            arrival_s=self.arrival_s,
            placed_s=self.placed_s,
            first_token_s=self.first_s,
            end_s=end_s,
            replica=route.replica if route else "",
            tries=self.tries_made,
            prompt_tokens=self.prompt_tokens,
            matched_tokens=route.matched_tokens if route else 0,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output,
            longest_gap_s=self.longest_gap_s,
            outcome=outcome,
            retry_after_s=self.retry_after_s,
            session=self.request.session,
            turn=self.request.turn,
            repeated_tokens=self.request.repeated_tokens,
        )
