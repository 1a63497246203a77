"""What a request says of its own placement: the policy that it wants, and its session.

Read from headers. A session may also be named by the body's `user` field, see `policies.session`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from pando_router.configuration.settings import PolicyName, RouterSettings
from pando_router.errors import ApiError, bad_request

POLICY_HEADER = b"x-pando-policy"
EXPLAIN_HEADER = b"x-pando-explain"
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True, slots=True)
class Steering:
    policy: PolicyName | None = None  # in place of the pool's
    session: bytes = b""  # empty where no header names one
    explain: bool = False  # all candidates are to be remembered, see `recent`


UNSTEERED = Steering()


class Steerer:
    """Finds a request's steering by the settings."""

    def __init__(self, settings: RouterSettings) -> None:
        self._allowed = settings.allow_policy_header
        self._session_header = settings.session_header.lower().encode()

    def __call__(self, headers: Sequence[tuple[bytes, bytes]], *, admin: bool) -> Steering:
        """The request's steering; `headers` have lower-case names. `admin`: from one who may see
        what concerns all tenants.

        Raises ApiError: 400 for a policy that does not exist, 403 where choosing is not allowed,
        or having all candidates remembered: Redis tells them in the middle of placing.
        """
        policy, session, explain = None, b"", False
        for name, value in headers:
            if name == POLICY_HEADER:
                policy = self._policy(value)
            elif name == self._session_header:
                session = value
            elif name == EXPLAIN_HEADER:
                explain = value.strip().lower() in (b"1", b"true")
                if explain and not admin:
                    raise ApiError(
                        403, "only admins may ask for all candidates", param="x-pando-explain"
                    )
        if policy or session or explain:
            return Steering(policy, session, explain)
        return UNSTEERED

    def _policy(self, value: bytes) -> PolicyName:
        if not self._allowed:
            raise ApiError(
                403, "this router does not let requests choose a policy", param="x-pando-policy"
            )
        name = value.decode("latin-1").strip()
        for policy in POLICIES:
            if name == policy:
                return policy
        raise bad_request(f"x-pando-policy is one of {', '.join(POLICIES)}", "x-pando-policy")
