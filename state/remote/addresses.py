"""Addresses of remote stores: URLs, displayed without their password."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ..errors import BadStoreAddress

POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss")

# Up to the last @: a password with an unescaped @ or / must be hidden, too.
_PASSWORD = re.compile(r"(?<=://)([^:@/]*):(.*)@")
_PASSWORD_OPTION = re.compile(r"(?<=password=)([^&]*)")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The address of a store.

    Args:
        url: the URL with the password, for the client library only.
    """

    url: str = field(repr=False)

    def __str__(self) -> str:
        return _PASSWORD_OPTION.sub("***", _PASSWORD.sub(r"\1:***@", self.url))

    @property
    def scheme(self) -> str:
        """The URL's scheme, in lower case."""
        return self.url.partition("://")[0].lower()

    def without_password(self, text: str) -> str:
        """Remove the password from a message of a client library."""
        for secret in self._passwords():
            text = text.replace(secret, "***")
        return text

    def _passwords(self) -> list[str]:
        secrets = [secret for _, secret in _PASSWORD.findall(self.url)] + _PASSWORD_OPTION.findall(self.url)
        # The longest first: one form may be part of another.
        return sorted({form for secret in secrets for form in (secret, unquote(secret)) if form}, key=len, reverse=True)


def address_of(url: str) -> StoreAddress:
    """Parse a URL.

    Raises:
        BadStoreAddress: it is not a URL of PostgreSQL or Redis.
    """
    address = StoreAddress(url)
    try:
        urlsplit(url)
    except ValueError:
        is_supported = False
    else:
        is_supported = address.scheme in POSTGRES + REDIS
    if not is_supported:
        raise BadStoreAddress(
            f"{address} is not the address of a supported store. Nothing was read or saved. Use postgresql://, redis:// or rediss:// "
            "(Redis over TLS), such as postgresql://user:password@host:5432/database or redis://:password@host:6379/0."
        )
    return address


def url_named(name: str) -> str:
    """Return a URL, or the value of the environment variable that contains it; empty if the variable is not set."""
    return name if "://" in name else os.environ.get(name, "")


def address_with(url: str, schemes: Sequence[str]) -> StoreAddress | None:
    """Return the address of a URL; None if it has none of the schemes."""
    with suppress(BadStoreAddress):
        address = address_of(url)
        if address.scheme in schemes:
            return address
    return None
