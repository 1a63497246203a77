"""The headers by which a request steers its own placement: its policy and its session.

The body's `user` field may name a session, too, see `Prompt.session`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pando_fleet.http.server.headers import name_of
from pando_router.configuration.settings import PolicyName, RouterSettings
from pando_router.errors import ApiError, bad_request
from pando_router.policies import POLICIES

POLICY_HEADER = b"x-pando-policy"
EXPLAIN_HEADER = b"x-pando-explain"


@dataclass(frozen=True, slots=True)
class Steering:
    policy: PolicyName | None = None  # instead of the pool's
    session: bytes = b""  # empty if no header names one
    explain: bool = False  # keep all candidates, see `explaining.recent`


UNSTEERED = Steering()


class Steerer:
    """Reads a request's steering, as far as the settings allow it."""

    def __init__(self, settings: RouterSettings) -> None:
        self._allowed = settings.allow_policy_header
        self._session_header = settings.session_header.lower().encode()
        self._names = frozenset((POLICY_HEADER, self._session_header, EXPLAIN_HEADER))

    def __call__(self, headers: Sequence[tuple[bytes, bytes]], *, admin: bool) -> Steering:
        """Reads the steering from `headers`, whose names are lower case.

        Raises ApiError: 400 for an unknown policy; 403 if requests may not choose one, or if the
        key is not an `admin`'s and the request asks for all candidates, which cost more to place.
        """
        if self._names.isdisjoint(map(name_of, headers)):
            return UNSTEERED
        policy, session, explain = None, b"", False
        for name, value in headers:
            if name not in self._names:
                continue
            if name == POLICY_HEADER:
                policy = self._policy(value)
            elif name == self._session_header:
                session = value
            else:
                explain = value.strip().lower() in (b"1", b"true")
                if explain and not admin:
                    raise ApiError(
                        403, "only admin keys may use x-pando-explain", param="x-pando-explain"
                    )
        return Steering(policy, session, explain)

    def _policy(self, value: bytes) -> PolicyName:
        if not self._allowed:
            raise ApiError(403, "this router does not allow x-pando-policy", param="x-pando-policy")
        name = value.decode("latin-1").strip()
        if name in POLICIES:
            return name
        known = ", ".join(POLICIES)
        raise bad_request(f"x-pando-policy must be one of {known}, not {name!r}", "x-pando-policy")
