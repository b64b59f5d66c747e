"""The options of a schema registry, for commands that infer declarations."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from ....transport.codecs import SchemaRegistry
from ...shell import OptionGroup
from ..inference import PASSWORD_VARIABLE, NamedRegistry


@dataclass(frozen=True)
class RegistryOptions(OptionGroup):
    """The schema registry of a topic."""

    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="The schema registry of the topic.", show_default=False)
    ] = None
    registry_user: Annotated[
        str | None,
        typer.Option(metavar="USER", help=f"Its user; the password is in {PASSWORD_VARIABLE}.", show_default=False),
    ] = None
    registry_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificates of its authorities.", show_default=False)
    ] = None

    def named(self) -> NamedRegistry | None:
        """Return the registry; None without a URL.

        Raises:
            BadParameter: there is a user, and no password.
        """
        if self.registry is None:
            return None
        if self.registry_user is not None and PASSWORD_VARIABLE not in os.environ:
            raise typer.BadParameter(f"Set the password in the environment variable {PASSWORD_VARIABLE}.")
        password = os.environ[PASSWORD_VARIABLE] if self.registry_user is not None else None
        return NamedRegistry(SchemaRegistry(self.registry, self.registry_user, password, self.registry_ca))
