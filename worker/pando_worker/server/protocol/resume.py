"""Resumes answers that another worker began before it was lost.

With the header `x-pando-token-ids` a router asks for the token ids of a stream's events. If the
stream breaks, it sends the same request to another worker with these ids as `resume_token_ids`.
They count as output generated here: for max_tokens and min_tokens, penalties, a seed's draws, stop
strings, a grammar, and the parsers of tool calls and reasoning. The answer repeats their text and
continues as the lost one would have; its header `x-pando-resumed-tokens` is the number of tokens
that were not generated here. Log-probabilities cover only tokens generated here, not the prompt and
not the resumed tokens.

Ids that the client has are the answer's here, too: `resume_call_ids` are those of its first tool
calls, `resume_response_id` is that of a response of OpenAI's, which this worker then keeps.
"""

from typing import Annotated

from pydantic import Field
from starlette.requests import Request

from pando_worker.server.errors import bad_request

ASKED = "x-pando-token-ids"
RESUMED = b"x-pando-resumed-tokens"
FIELD = "resume_token_ids"

CallId = Annotated[str, Field(min_length=1, max_length=256)]
ResponseId = Annotated[str, Field(pattern=r"^resp_[A-Za-z0-9]{1,64}$")]


def tells_tokens(request: Request) -> bool:
    return ASKED in request.headers


def check_resumed(resumed: list[int], *, choices: int, budget: int) -> None:
    """Raises ApiError 400 for a request that cannot be resumed.

    Args:
        choices: number of choices of the whole request
        budget: most tokens of the whole output
    """
    if not resumed:
        return
    if choices > 1:
        raise bad_request(f"{FIELD} needs exactly one choice; this request has {choices}", FIELD)
    if len(resumed) >= budget:
        raise bad_request(
            f"{FIELD} has {len(resumed)} tokens, which leaves none of the {budget} that the output"
            " may have",
            FIELD,
        )
