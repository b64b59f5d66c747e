"""Pydantic models as records: a struct for each model, which describes it, and conversions between the two.

A model is validated by pydantic when a message is read, and when a record is written. Everything else sees its struct: encoders, schemas and columns. Values that
Penstock stored itself, in state and in the archive, become models again without validation, so a validator runs once for each message.

This module does not import pydantic: apps without models start without it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec
from msgspec import inspect as shapes

from .model_structs import ModelStruct, is_model

if TYPE_CHECKING:
    from pydantic import BaseModel


class ModelRecord(Protocol):
    """An instance of a pydantic model."""

    __pydantic_fields__: ClassVar[dict[str, Any]]


def struct_of(model: type[BaseModel]) -> type[ModelStruct]:
    """Return the struct with the fields of a model: their Python names, names on the bus, types and defaults.

    Raises:
        DeclarationError: records of the model could not be stored, or read as they were written.
    """
    from .structs import struct_for  # noqa: PLC0415 - imports pydantic

    return struct_for(model)


@lru_cache(maxsize=1_000)
def _struct_or_none(kind: type) -> type[ModelStruct] | None:
    """Return the struct of a model; None for another type. Encoders ask for each value."""
    return struct_of(kind) if is_model(kind) else None


def described(record: Any) -> Any:
    """Return the struct of a model; another type unchanged."""
    return struct_of(record) if is_model(record) else record


def shape_of(kind: Any) -> shapes.Type:
    """Return the shape of a type; the shape of its struct for a model."""
    return shapes.type_info(described(kind))


def encode_model(value: Any) -> Any:
    """Return a model as its struct. The `enc_hook` of encoders of records and states.

    Raises:
        TypeError: the value is no model.
        msgspec.ValidationError: a value does not fit its field.
    """
    kind: type = type(value)
    struct = _struct_or_none(kind)
    if struct is None:
        raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")
    return msgspec.convert(value, struct, from_attributes=True)


def encode_shown(value: Any) -> Any:
    """Return a model as its struct, and any other value as text. The `enc_hook` for display."""
    return encode_model(value) if is_model(type(value)) else str(value)


def decode_model(kind: type, value: Any) -> Any:
    """Return the model that was stored as plain values, without validation. The `dec_hook` of decoders of states and stored records.

    Raises:
        msgspec.ValidationError: the values do not fit the model.
    """
    if isinstance(value, kind):
        return value
    if not is_model(kind):
        raise msgspec.ValidationError(f"Expected `{kind.__name__}`")
    return model_from(msgspec.convert(value, struct_of(kind)))


def model_from(value: Any) -> Any:
    """Return a value with models in place of their structs, at every depth. Validators do not run."""
    if isinstance(value, ModelStruct):
        fields = zip(value.__struct_encode_fields__, msgspec.structs.astuple(value), strict=True)
        return value.model.model_construct(**{name: model_from(content) for name, content in fields})
    if isinstance(value, dict):
        return {key: model_from(content) for key, content in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(map(model_from, value))
    return value
