"""`Pools`: what a loaded model's memory has for its scheduler to give out."""

from dataclasses import dataclass, field

from pando_worker.rates import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Pages are of the setting's size."""

    capacity_tokens: int
    context_length: int  # tokens that a request may have
    window: int = 0  # of the layers that release pages behind it; 0 where all share one pool
    window_pages: int = 0
    host_pages: int = 0  # 0 where there is no host tier
    host_window_pages: int = 0
    host_page_bytes: int = 0  # of a page of all layers
    copy_rate: Rate = field(default_factory=Rate)  # bytes to and from the host, as measured
