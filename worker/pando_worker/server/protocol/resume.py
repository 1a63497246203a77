"""Answers that another worker began, and that go on here after it was lost.

A router asks with the header `x-pando-token-ids` that a stream's events tell their token ids. When
the stream breaks it sends the same request to another worker, with these ids as
`resume_token_ids`. They count as output that was generated here: of max_tokens and min_tokens, for
penalties, a seed's draws, stop strings, a grammar and the parsers of calls and reasoning. The
answer begins with their text again and goes on as the lost one would have; its header
`x-pando-resumed-tokens` says how many of its tokens were not generated here. Log-probabilities come
only of tokens that are generated here, not of the prompt's and not of those resumed.
"""

from starlette.requests import Request

from pando_worker.server.errors import bad_request

ASKED = "x-pando-token-ids"
RESUMED = b"x-pando-resumed-tokens"
FIELD = "resume_token_ids"


def tells_tokens(request: Request) -> bool:
    return ASKED in request.headers


def check_resumed(resumed: list[int], *, choices: int, budget: int) -> None:
    """Raises ApiError 400 for what cannot go on.

    Args:
        choices: of the whole request
        budget: tokens that the whole output may have
    """
    if not resumed:
        return
    if choices > 1:
        raise bad_request(f"{FIELD} is of one choice, and this request has {choices}", FIELD)
    if len(resumed) >= budget:
        raise bad_request(
            f"{FIELD} has {len(resumed)} tokens, which leaves none of the {budget} that the output"
            " may have",
            FIELD,
        )
