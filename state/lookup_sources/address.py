"""How a store of rows is named: by its address, or by the variable of the environment that holds it, which is where passwords belong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from ...processors.errors import DeclarationError
from ...processors.lookups import LookupRefused
from ..errors import StateError
from ..remote.addresses import Address, address_of
from ..remote.errors import StoreLibraryMissing

DEFAULT_VARIABLE = "PENSTOCK_LOOKUPS"


def address_named(name: str, schemes: Sequence[str], what: str) -> Address:
    """Return the address that is meant.

    Args:
        name: an address, or the name of a variable.
        schemes: what it may begin with.
        what: is to be looked up there, for messages.

    Raises:
        LookupRefused: the variable is not set, or holds no such address.
    """
    url = name if "://" in name else os.environ.get(name, "")
    if not url:
        raise LookupRefused(
            f"Where {what} is to be looked up is to stand in the environment variable {name}, which is not set here. Nothing was looked "
            f"up; set it, such as {name}={schemes[0]}://user:password@host, in every process that looks rows up; a batch run "
            "hands it on to Spark's executors from where it is started."
        )
    with suppress(StateError):
        address = address_of(url)
        if address.scheme in schemes:
            return address
    raise LookupRefused(
        f"{what} cannot be looked up at {Address(url)}: give an address that begins with {schemes[0]}://. Nothing was looked up."
    )


def expect_time(owner: object, limit: timedelta) -> None:
    """Raise DeclarationError for a limit of time that leaves none."""
    if limit <= timedelta():
        raise DeclarationError(f"{owner}: a time limit of {limit} leaves no time for an answer. It must be above zero.")


def explained(error: StateError, what: str) -> LookupRefused:
    """Return a store's refusal as one of a lookup."""
    remedy = "" if isinstance(error, StoreLibraryMissing) else f" {what} could not be looked up."
    return LookupRefused(f"{error}{remedy}")
