"""Addresses of lookup stores: a URL, or the environment variable that contains it, which is the place for passwords."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ...processors import DeclarationError
from ...processors.lookups import LookupRefused
from ..errors import StateError
from ..remote import StoreAddress, StoreLibraryMissing, address_with, url_named

DEFAULT_VARIABLE = "PENSTOCK_LOOKUPS"


def address_named(name: str, schemes: Sequence[str], what: str) -> StoreAddress:
    """Return the address of a store.

    Args:
        name: an address, or the name of an environment variable.
        schemes: the supported URL schemes.
        what: the source, for messages.

    Raises:
        LookupRefused: the variable is missing, or the address is of another kind.
    """
    url = url_named(name)
    if not url:
        raise LookupRefused(
            f"The address for {what} belongs in the environment variable {name}, which is not set here. Nothing was looked up. Set it, such as "
            f"{name}={schemes[0]}://user:password@host, in every process that looks rows up. A batch run passes it to Spark's executors."
        )
    address = address_with(url, schemes)
    if address is not None:
        return address
    raise LookupRefused(
        f"{what} cannot be looked up at {StoreAddress(url)}. Nothing was looked up. Use an address that starts with {schemes[0]}://."
    )


def expect_time(owner: object, limit: timedelta) -> None:
    """Raise DeclarationError unless a time limit is above zero."""
    if limit <= timedelta():
        raise DeclarationError(f"{owner}: a time limit of {limit} allows no answer. Use a limit above zero.")


def lookup_refused(error: StateError, what: str) -> LookupRefused:
    """Translate a store's error."""
    remedy = "" if isinstance(error, StoreLibraryMissing) else f" {what} could not be looked up."
    return LookupRefused(f"{error}{remedy}")
