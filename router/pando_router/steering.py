"""What a request says of its own placement: the policy that it wants, and its session.

Read from headers, and where no header names a session from the body's `user` field; and only where
a setting makes it count, so that other routers pay nothing for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from pando_router.errors import ApiError, bad_request
from pando_router.settings import PolicyName, RouterSettings

POLICY_HEADER = b"x-pando-policy"
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True, slots=True)
class Steering:
    policy: PolicyName | None = None  # in place of the pool's
    session: bytes = b""  # empty where none is named


UNSTEERED = Steering()


class _Metadata(msgspec.Struct):
    user_id: Any = None


class _Body(msgspec.Struct):
    user: Any = None
    metadata: _Metadata | None = None


_decode_body = msgspec.json.Decoder(_Body).decode


class Steerer:
    """Finds a request's steering by the settings."""

    def __init__(self, settings: RouterSettings) -> None:
        self._allowed = settings.allow_policy_header
        self._session_header = settings.session_header.lower().encode()
        self._sessions = self._allowed or "session" in (
            settings.policy,
            *settings.pool_policies.values(),
        )

    def __call__(self, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Steering:
        """The request's steering; `headers` have lower-case names, `body` is JSON.

        Raises ApiError: 400 for a policy that does not exist, 403 where choosing is not allowed.
        """
        policy, session = None, b""
        for name, value in headers:
            if name == POLICY_HEADER:
                policy = self._policy(value)
            elif name == self._session_header:
                session = value
        if self._sessions and not session:
            session = _user(body)
        return Steering(policy, session) if policy or session else UNSTEERED

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


def _user(body: bytes) -> bytes:
    """OpenAI's `user`, or `metadata.user_id` as Anthropic has it."""
    try:
        found = _decode_body(body)
    except msgspec.MsgspecError:  # a metadata of another shape: its place is not this one
        return b""
    user = found.user or (found.metadata and found.metadata.user_id)
    return user.encode("utf-8", "surrogatepass") if isinstance(user, str) else b""
