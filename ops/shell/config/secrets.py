"""Redaction of secrets in a configuration."""

from __future__ import annotations

import re
from typing import Any

from ....state.remote import StoreAddress

HIDDEN = "***"
_SECRET = re.compile(r"password|passwd|secret|token|credential|jaas|oauthbearer\.config|webhook|\.pem$", re.IGNORECASE)
_PUBLIC = re.compile(r"\.location$|^ssl\.(ca|certificate)\.pem$|token\.endpoint\.url$", re.IGNORECASE)


def without_secrets(name: str, value: Any) -> Any:
    """Return a value without secrets: passwords are hidden, in addresses only the password.

    Args:
        name: the name of the setting, which identifies secrets.
        value: any TOML value.
    """
    if isinstance(value, dict):
        return {inner: without_secrets(inner, inner_value) for inner, inner_value in value.items()}
    if isinstance(value, list):
        return [without_secrets(name, item) for item in value]
    if _SECRET.search(name) and not _PUBLIC.search(name):
        return HIDDEN
    return str(StoreAddress(value)) if isinstance(value, str) else value
