"""A try to have a request answered, as it is remembered after it is over."""

from dataclasses import dataclass

import msgspec

from pando_fleet.placement.placer import Placement
from pando_router.configuration.settings import PolicyName
from pando_router.core.events import CacheReport


class Try(msgspec.Struct, gc=False):
    """What became of a request at one replica. Its exchange notes it here, and nobody else."""

    status: int = 0  # until the answer's head has come
    report: CacheReport | None = None


@dataclass(frozen=True, slots=True)
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
    tried: Try
