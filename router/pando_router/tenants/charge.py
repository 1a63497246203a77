"""What a request was admitted with: its tenant pays at its end for what it has used."""

import msgspec

from pando_router.http.headers import Headers


class Charge(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int  # estimated, until the answer says it
    reserved: int | None  # tokens; None where none were taken
    headers: Headers  # of the answer: the tenant's limits
    redis_s: float = 0.0  # how long the check in Redis took
