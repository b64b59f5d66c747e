"""A schema registry with the code that declares it."""

from __future__ import annotations

from dataclasses import dataclass

from ....transport.codecs import SchemaRegistry

PASSWORD_VARIABLE = "PENSTOCK_REGISTRY_PASSWORD"  # noqa: S105 - the name of a variable


@dataclass(frozen=True)
class NamedRegistry:
    """A registry that an inferred module declares as `registry`. The module reads its password from a variable.

    Args:
        registry: the registry.
    """

    registry: SchemaRegistry

    @property
    def setup(self) -> str:
        """The line that declares the registry."""
        registry = self.registry
        arguments = [f'"{registry.url}"']
        if registry.user is not None:
            arguments += [f'user="{registry.user}"', f'password=os.environ["{PASSWORD_VARIABLE}"]']
        if registry.ca is not None:
            arguments.append(f'ca="{registry.ca}"')
        return f"registry = ps.codecs.SchemaRegistry({', '.join(arguments)})"

    @property
    def imports(self) -> tuple[str, ...]:
        """The imports of that line."""
        return ("import os",) if self.registry.user is not None else ()
