"""The default: placement in Redis weighs cache and load (fleet/README.md, "The score")."""

from collections.abc import Sequence

from pando_router.fleet_view.view import Member
from pando_router.placing.route import Prompt


class CacheAware:
    def pick(self, prompt: Prompt, members: Sequence[Member]) -> None:
        return None
