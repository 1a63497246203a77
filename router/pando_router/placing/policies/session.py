"""All requests of a session go to one replica, while it has room.

A session is named by a header, or by the body's `user`.

A session belongs to the heaviest replica by rendezvous hashing (see `rendezvous`): every router
finds the same one without shared state, and a replica that leaves moves only its own sessions. A
request without a session is placed as by `cache_aware`.
"""

from collections.abc import Sequence

from pando_router.core import rendezvous
from pando_router.fleet_view.view import Member
from pando_router.placing.route import Prompt


class Session:
    def pick(self, prompt: Prompt, members: Sequence[Member]) -> Member | None:
        session = prompt.steering.session or (prompt.request.user or "").encode()
        if not session:
            return None
        return max(members, key=lambda m: rendezvous.weight(session, m.beat.replica))
