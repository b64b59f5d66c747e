"""Placeholders in templates."""

from __future__ import annotations

from collections.abc import Mapping


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the value of each placeholder, such as `@name@`."""
    for placeholder, value in values.items():
        text = text.replace(f"@{placeholder}@", value)
    return text
