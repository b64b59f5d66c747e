"""The options of a schema registry, for commands that infer declarations."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ....transport.codecs import SchemaRegistry
from ..inference import PASSWORD_VARIABLE, NamedRegistry

Registry = Annotated[
    str | None, typer.Option(metavar="URL", help="The schema registry of the topic.", show_default=False)
]
RegistryUser = Annotated[
    str | None,
    typer.Option(metavar="USER", help=f"Its user; the password is in {PASSWORD_VARIABLE}.", show_default=False),
]
RegistryCa = Annotated[
    str | None, typer.Option(metavar="FILE", help="The certificates of its authorities.", show_default=False)
]


def named_registry(url: str | None, user: str | None, ca: str | None) -> NamedRegistry | None:
    """Return the registry of the options; None without a URL.

    Raises:
        BadParameter: there is a user, and no password.
    """
    if url is None:
        return None
    if user is not None and PASSWORD_VARIABLE not in os.environ:
        raise typer.BadParameter(f"Set the password in the environment variable {PASSWORD_VARIABLE}.")
    password = os.environ[PASSWORD_VARIABLE] if user is not None else None
    return NamedRegistry(SchemaRegistry(url, user, password, ca))
