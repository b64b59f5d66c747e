"""Samples of topics, and the declarations that are inferred from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.ops.start import declaration_of
from penstock.ops.start.inference.registries import NamedRegistry
from penstock.ops.start.inference.topic_sample import TopicSample
from penstock.processors.declare import AnyCategory, Category, Message
from penstock.transport import CategorySpec, MessageCopy
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

ARRIVED_MS = 1_780_000_000_000
SPEC = CategorySpec("user-orders", 4, timedelta(days=7))


def message(content: Any, key: bytes | None = None, bucket: int = 0, headers: Any = None) -> MessageCopy:
    """Return a message with a JSON value, or with these bytes."""
    value = content if isinstance(content, bytes) else json.dumps(content).encode()
    return MessageCopy(value, key, bucket, timestamp=(2, ARRIVED_MS), headers=headers)


def inferred(
    messages: Sequence[MessageCopy], spec: CategorySpec = SPEC, registry: NamedRegistry | None = None
) -> AnyCategory:
    """Run the inferred module, and return its category."""
    names: dict[str, Any] = {"__name__": "inferred"}
    code = declaration_of(TopicSample(spec, messages), registry)
    exec(compile(code, "inferred.py", "exec", dont_inherit=True), names)  # noqa: S102 - the code under test
    [category] = [value for value in names.values() if isinstance(value, Category)]
    return category


def events_of(category: AnyCategory, messages: Sequence[Message]) -> list[Any]:
    """Decode messages; each of them decodes."""
    decoded = Codecs(MemoryBus()).of(category).decode(messages)
    assert decoded.bad == []
    return list(decoded.events)


def change(number: int, operation: str, before: Any, after: Any) -> dict[str, Any]:
    """Return the envelope of a change."""
    source = {"table": "customers", "ts_ms": ARRIVED_MS - number, "lsn": number}
    return {"before": before, "after": after, "source": source, "op": operation, "ts_ms": ARRIVED_MS}
