"""`EncoderBudget`: how much of a step encodes sources, so that streams wait little beside it."""

from pando_worker.scheduler.pages.sources import SourcePages
from pando_worker.scheduler.req import Req

# Requests that are passed over in a step because their sources are not cached, at most.
_PASSED = 64


class EncoderBudget:
    """Of one step."""

    def __init__(self, sources: SourcePages, positions: int) -> None:
        """
        Args:
            positions: of sources that the step encodes, at most; but one source always
        """
        self._sources = sources
        self._positions = positions
        self._before = sources.encoded_positions_total
        self._passed = 0

    def has_room(self, req: Req) -> bool:
        """Whether the step can encode a waiting request's source, or need not."""
        if req.source is None:
            return True
        taken = self._sources.encoded_positions_total - self._before
        if taken == 0 or taken + req.source.length <= self._positions:
            return True
        return self._sources.is_cached(req.source)

    def passes(self) -> bool:
        """Count a request without room; returns whether one behind it may be tried."""
        self._passed += 1
        return self._passed < _PASSED
