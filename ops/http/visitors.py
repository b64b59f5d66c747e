"""Clients of a server: who they are, and what they may do.

token                  the role of the token; the visitor is anyone who has it
proxy with OpenID      the user and the groups in the headers of a proxy that proves itself with a shared secret
neither                an unnamed visitor on this machine
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.datastructures import Headers  # an extra

SECRET_HEADER = "x-penstock-proxy-secret"  # noqa: S105 - a name
USER_HEADERS = ("x-forwarded-email", "x-forwarded-user")
"""The headers with the user's name. The first one that is there counts."""
GROUPS_HEADER = "x-forwarded-groups"


class Role(StrEnum):
    """What a visitor may do."""

    VIEWER = "viewer"
    """Read."""
    LOCAL = "local"
    """Read, and try dead letters again: an unnamed visitor on this machine."""
    OPERATOR = "operator"
    """Also change deployments and silence alerts."""

    @property
    def may_dry_run(self) -> bool:
        """Whether a visitor may run the app's code on a dead letter."""
        return self is not Role.VIEWER

    @property
    def may_operate(self) -> bool:
        """Whether a visitor may change deployments and silence alerts."""
        return self is Role.OPERATOR


@dataclass(frozen=True)
class Visitor:
    """A visitor.

    Args:
        user: the name, for the audit log.
        role: the role.
    """

    user: str
    role: Role


LOCAL_VISITOR = Visitor("a visitor on this machine", Role.LOCAL)


@dataclass(frozen=True)
class TrustedProxy:
    """A proxy that authenticates users, such as oauth2-proxy. Only its requests contain the shared secret.

    Args:
        secret: the shared secret: the header `X-Penstock-Proxy-Secret`, or the password of `Authorization: Basic`.
        operators: the groups whose members are operators.
        viewers: the groups whose members are viewers; empty for all users.
    """

    secret: str = field(repr=False)
    operators: frozenset[str] = frozenset()
    viewers: frozenset[str] = frozenset()

    def sent(self, headers: Headers) -> bool:
        """Return whether the proxy sent a request."""
        return any(
            is_equal(found, self.secret) for found in (headers.get(SECRET_HEADER), _basic_password(headers)) if found
        )

    def visitor(self, headers: Headers) -> Visitor | None:
        """Return the user of a request that the proxy sent; None if the headers name none, or one without access."""
        user = next((name for header in USER_HEADERS if (name := headers.get(header, "").strip())), "")
        groups = {group.strip() for line in headers.getlist(GROUPS_HEADER) for group in line.split(",")}
        if not user:
            return None
        if groups & self.operators:
            return Visitor(user, Role.OPERATOR)
        return Visitor(user, Role.VIEWER) if not self.viewers or groups & self.viewers else None


def _basic_password(headers: Headers) -> str | None:
    kind, _, encoded = headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None


def is_equal(text: str, expected: str) -> bool:
    """Return whether two texts are equal. The time does not depend on their similarity."""
    return hmac.compare_digest(text.encode(), expected.encode())
