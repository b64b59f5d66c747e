"""The consumer group of archivers. Imports nothing of the warehouse, so that installations without Arrow know it, too."""

from __future__ import annotations


def group_of(category: str) -> str:
    """Return the consumer group that archives a category."""
    return f"archiver.{category}"
