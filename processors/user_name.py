"""The name of the user that runs this process."""

from __future__ import annotations

import os
from getpass import getuser


def user_name() -> str:
    """Return the name of the user, or `uid N` for a container's user without a name."""
    try:
        return getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
