"""The record of a try after it is over."""

from dataclasses import dataclass

import msgspec

from pando_fleet.placement.placer import Placement
from pando_router.configuration.settings import PolicyName
from pando_router.core.events import CacheReport


class Try(msgspec.Struct, gc=False):
    """The result of a request at one replica, written only by its exchange."""

    status: int = 0  # 0 until the answer's head has arrived
    report: CacheReport | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """Numbers, names and terms only: no text and no chunk keys of prompts."""

    request_id: str
    at: float  # Unix time, seconds
    model: str
    pool: str
    replica: str
    wanted: PolicyName | None  # the policy, if the request chose it
    tenant: str
    is_salted: bool
    chunks: int
    placement: Placement | None  # None if placed without Redis
    tried: Try
