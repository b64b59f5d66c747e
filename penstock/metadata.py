"""Metadata fields: fields of a record that contain a message's key, headers, timestamp or position."""

from .processors.declare import AppendTime, CreateTime, Header, Headers, Key, MessagePart, Offset, Partition, Timestamp

__all__ = [
    "AppendTime",
    "CreateTime",
    "Header",
    "Headers",
    "Key",
    "MessagePart",
    "Offset",
    "Partition",
    "Timestamp",
]
