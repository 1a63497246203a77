"""The record of a try after it is over."""

import msgspec

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.placer import Placement
from pando_router.core.events import CacheReport


class Try(msgspec.Struct, gc=False):
    """The result of a request at one replica, written only by its exchange."""

    status: int = 0  # 0 until the answer's head has arrived
    report: CacheReport | None = None


class Past(msgspec.Struct, frozen=True, gc=False):
    """Numbers, names and terms only: no text, image or chunk key of prompts."""

    request_id: str
    at: float  # Unix time, seconds
    model: str
    pool: str
    replica: str
    policy: str  # that placed it
    tenant: str
    is_salted: bool
    images: tuple[PrefixImage, ...]
    chunks: int
    placement: Placement | None  # None if placed without Redis
    tried: Try
