"""Types of configuration tables that are not options of a command."""

from __future__ import annotations

import msgspec


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A table. Its keys are the fields, with dashes instead of underscores. Fields without a default are required.

    Nested tables are sections, too. Fields with secrets have names such as password, secret, token or webhook, so that
    `penstock config show` hides them.
    """
