"""A try to have a request answered, as it is remembered after it is over."""

from dataclasses import dataclass

from pando_fleet.placement import Placement
from pando_router.settings import PolicyName


@dataclass(slots=True)
class Past:
    """Numbers, names and terms only: no text, and no keys of prompts."""

    request_id: str
    at: float  # Unix time, seconds
    model: str
    pool: str
    replica: str
    wanted: PolicyName | None  # the policy, where the request chose it
    tenant: str
    is_salted: bool
    chunks: int
    placement: Placement | None  # None where Redis had no part in it
    status: int = 0  # until the answer's head has come
    cached_tokens: int | None = None  # by the replica's word
    prompt_tokens: int | None = None  # by the replica's word
