"""What a request reserved when it was admitted; it is settled by its actual use at the end."""

import msgspec

from pando_fleet.http.server.headers import Headers


class Charge(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int  # estimated, until the answer reports them
    reserved: int | None  # tokens; None if none were reserved
    headers: Headers  # the tenant's limits, as headers of the answer
    redis_s: float = 0.0  # duration of the check in Redis
