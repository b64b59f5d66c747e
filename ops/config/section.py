"""Tables of the configuration that are not options of a command: each a type of its own."""

from __future__ import annotations

import msgspec


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A table, whose keys are the fields with dashes for underscores; a field without a default has to be given where the table is.

    Tables within it are sections, too. Secrets among its fields are called so (password, secret, token, webhook), which hides them in
    `penstock config show`.
    """
