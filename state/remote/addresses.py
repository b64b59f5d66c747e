"""Addresses of stores: URLs, which are shown without their password."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ..errors import BadStoreAddress

POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss")

# Up to the last @: a password in which @ or / was not escaped must not be shown either.
_PASSWORD = re.compile(r"(?<=://)([^:@/]*):(.*)@")
_PASSWORD_OPTION = re.compile(r"(?<=password=)([^&]*)")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is.

    Args:
        url: with the password, for the client library alone.
    """

    url: str = field(repr=False)

    def __str__(self) -> str:
        return _PASSWORD_OPTION.sub("***", _PASSWORD.sub(r"\1:***@", self.url))

    @property
    def scheme(self) -> str:
        """What stands before `://`, in lower case."""
        return self.url.partition("://")[0].lower()

    def without_password(self, text: str) -> str:
        """Return what a client library said, without our password should it repeat that."""
        for secret in self._passwords():
            text = text.replace(secret, "***")
        return text

    def _passwords(self) -> list[str]:
        given = [secret for _, secret in _PASSWORD.findall(self.url)] + _PASSWORD_OPTION.findall(self.url)
        # The longest first: one may be part of another.
        return sorted({form for secret in given for form in (secret, unquote(secret)) if form}, key=len, reverse=True)


def address_of(url: str) -> Address:
    """Return the address that a URL stands for.

    Raises:
        BadStoreAddress: it is not a URL of PostgreSQL or Redis.
    """
    address = Address(url)
    try:
        urlsplit(url)
    except ValueError:
        known = False
    else:
        known = address.scheme in POSTGRES + REDIS
    if not known:
        raise BadStoreAddress(
            f"State cannot be kept at {address}: give an address that begins with postgresql://, redis:// or rediss:// (Redis "
            "over TLS), such as postgresql://user:password@host:5432/database or redis://:password@host:6379/0. Nothing was "
            "read or saved."
        )
    return address
