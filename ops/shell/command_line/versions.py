"""What `penstock --version` prints."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from confluent_kafka import libversion

from .... import __version__
from ....transport import compiled_parts


def version_lines() -> Iterator[str]:
    """Yield the versions and the compiled parts, then a line for each part that is off or slower than it could be."""
    parts = compiled_parts()
    compiled = ", ".join(part.name for part in parts if part.obstacle is None) or "nothing"
    yield f"penstock {__version__} (Python {platform.python_version()}, librdkafka {libversion()[0]}; compiled: {compiled})"
    for part in parts:
        if part.obstacle is not None:
            yield f"{part.name}, slower: {part.obstacle}."
        elif part.limit is not None:
            yield f"{part.name}: {part.limit}."
