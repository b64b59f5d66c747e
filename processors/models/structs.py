"""The structs of pydantic models, and the models that cannot be records.

Imports pydantic, so it is imported only for an app with models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from threading import RLock
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec
from pydantic import (
    VERSION,
    AwareDatetime,
    BaseModel,
    FutureDate,
    FutureDatetime,
    PastDate,
    PastDatetime,
    PydanticUserError,
)
from pydantic.fields import FieldInfo
from pydantic.functional_serializers import PlainSerializer, WrapSerializer

from ..errors import DeclarationError
from ..validation import is_class
from .model_structs import ModelStruct, is_model

_MINIMUM = (2, 11)
_PLAIN = {bool, int, float, str, Decimal, datetime, date, time, timedelta, UUID, NoneType}
_NARROWED: dict[Any, type] = {
    AwareDatetime: datetime,
    PastDatetime: datetime,
    FutureDatetime: datetime,
    PastDate: date,
    FutureDate: date,
}
"""Types of pydantic whose values are of a plain type."""
_COLLECTIONS = (list, tuple, set, frozenset, dict)
_structs: dict[type[BaseModel], type[ModelStruct]] = {}
_lock = RLock()


def struct_for(model: type[BaseModel]) -> type[ModelStruct]:
    """Return the only struct of a model.

    Raises:
        DeclarationError: records of the model could not be stored, or read as they were written.
    """
    with _lock:
        if model not in _structs:
            description = _Description()
            try:
                description.add(model)
                description.expect_defaults()
            except BaseException:
                for each in description.added:
                    del _structs[each]
                raise
        return _structs[model]


class _Description:
    """Creates the structs of a model and of the models in it."""

    def __init__(self) -> None:
        self.added: list[type[BaseModel]] = []

    def add(self, model: type[BaseModel]) -> type[ModelStruct]:
        """Return the struct of a model, which may contain models of its own type."""
        if model in _structs:
            return _structs[model]
        _expect_storable(model)
        fields = [(name, Any, _field(model, name, field)) for name, field in model.model_fields.items()]
        _expect_distinct(model)
        struct: Any = msgspec.defstruct(
            model.__name__, fields, bases=(ModelStruct,), namespace={"model": model}, kw_only=True, gc=False
        )
        _structs[model] = struct
        self.added.append(model)
        # msgspec resolves annotations at first use, which is after all structs are complete.
        for name, field in model.model_fields.items():
            struct.__annotations__[name] = _Types(self, model, name).annotated(field.annotation, field.metadata)
        return _structs[model]

    def expect_defaults(self) -> None:
        """Raise DeclarationError for a default of another type: pydantic does not validate defaults."""
        for model in self.added:
            for name, field in model.model_fields.items():
                if not (field.is_required() or field.default_factory is not None or is_model(type(field.default))):
                    _expect_default(model, name, field.default)


def _expect_storable(model: type[BaseModel]) -> None:
    """Raise DeclarationError for a model with a property that a message or a column cannot represent."""
    if tuple(map(int, VERSION.split(".")[:2])) < _MINIMUM:
        raise DeclarationError(
            f"{model.__qualname__} is a model of pydantic {VERSION}, and Penstock needs 2.11. Nothing was read. Install it with `pip install 'penstock[pydantic]'`."
        )
    if model is BaseModel:
        raise DeclarationError(
            "pydantic.BaseModel is not a record type: it has no fields. Derive your own model from it."
        )
    try:
        model.model_rebuild()
    except (PydanticUserError, NameError) as error:
        raise DeclarationError(f"The fields of {model.__qualname__} cannot be resolved: {error}") from error
    reason = next(_refusals_of(model), None)
    if reason is not None:
        raise DeclarationError(f"{model.__qualname__} is not a record type: {reason}")


def _refusals_of(model: type[BaseModel]) -> Iterator[str]:
    """Yield why a model cannot be a record, with the remedy."""
    decorators, config = model.__pydantic_decorators__, model.model_config
    if model.__pydantic_root_model__:
        yield "a root model has no named fields, and a record is an object. Declare a BaseModel with a field for the value."
    for name in decorators.computed_fields:
        yield (
            f"its computed field {name!r} would be in messages, but no reader could set it. Declare it as a property, without "
            "`computed_field`."
        )
    for name in (
        *decorators.field_serializers,
        *decorators.model_serializers,
        *(["json_encoders"] if config.get("json_encoders") else []),
    ):
        yield f"its serializer {name!r} would not run, because every format and the warehouse need the declared type. Remove it."
    if config.get("extra") == "allow":
        yield 'with `extra="allow"` it keeps fields that no column or schema knows, and they would be lost. Declare these fields, or `extra="ignore"`.'


def _expect_distinct(model: type[BaseModel]) -> None:
    names = [_bus_name(model, name, field) for name, field in model.model_fields.items()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DeclarationError(
            f"Two fields of {model.__qualname__} have the name {twice!r} on the bus. Give one of them another alias."
        )


def _bus_name(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    """Return the alias with which a field is read and written; its own name without one."""
    read, written = field.validation_alias or name, field.serialization_alias or name
    if read != written:
        raise DeclarationError(
            f"{model.__qualname__}.{name} is read as {read!r} and written as {written!r}, so readers would not find it. Declare one name for both with "
            "`Field(alias=…)`."
        )
    return written


def _field(model: type[BaseModel], name: str, field: FieldInfo) -> Any:
    """Return a field of the struct, without its type."""
    if field.exclude:
        raise DeclarationError(
            f"{model.__qualname__}.{name} is excluded from messages (`exclude=True`), so readers would lose its value. Declare it as a private attribute or a property."
        )
    if field.default_factory_takes_validated_data:
        raise DeclarationError(
            f"The default of {model.__qualname__}.{name} depends on other fields, so schemas and columns have none. Set it in a validator of the model, or declare a default "
            "without arguments."
        )
    options: dict[str, Any] = {"name": _bus_name(model, name, field)}
    if not field.is_required():
        factory: Any = field.default_factory
        if factory is None:
            default = field.default
            factory = (lambda: deepcopy(default)) if isinstance(default, (*_COLLECTIONS, BaseModel)) else None
        options |= {"default": field.default} if factory is None else {"default_factory": factory}
    return msgspec.field(**options)


def _expect_default(model: type[BaseModel], name: str, default: Any) -> None:
    try:
        kind = type(msgspec.convert(default, _structs[model].__annotations__[name], from_attributes=True))
    except msgspec.ValidationError as error:
        raise DeclarationError(
            f"{_wrong_default(model, name, default)}: {error}. Declare a default of this type."
        ) from error
    if kind is not type(default) and (type(default), kind) != (int, float):
        raise DeclarationError(
            f"{_wrong_default(model, name, default)}, {kind.__name__}, and pydantic would not convert it. Declare a default of this type."
        )


def _wrong_default(model: type[BaseModel], name: str, default: Any) -> str:
    return f"The default {default!r} of {model.__qualname__}.{name} is not of the field's type"


class _Types:
    """Converts the types of one field to types of structs.

    Args:
        description: adds the structs of models.
        model: the model with the field.
        name: the field, for errors.
    """

    def __init__(self, description: _Description, model: type[BaseModel], name: str) -> None:
        self._description = description
        self._model = model
        self._place = f"{model.__qualname__}.{name}"

    def annotated(self, declared: Any, extras: Iterable[Any]) -> Any:
        """Return a type with its annotations for msgspec. Those of pydantic apply when pydantic validates."""
        kept = []
        for extra in extras:
            if isinstance(extra, (PlainSerializer, WrapSerializer)):
                raise DeclarationError(
                    f"The serializer of {self._place} would not run, because every format and the warehouse need the declared type. Remove it."
                )
            if isinstance(extra, msgspec.Meta):
                kept.append(extra)
            elif isinstance(extra, FieldInfo):
                self.annotated(None, extra.metadata)
        kind = self.of(declared)
        for meta in kept:
            kind = Annotated[kind, meta]
        return kind

    def of(self, declared: Any) -> Any:  # noqa: PLR0911 - one answer for each sort of type
        """Return a type with the structs of models.

        Raises:
            DeclarationError: the formats have no such type.
        """
        origin, arguments = get_origin(declared), get_args(declared)
        if origin is Annotated:
            return self.annotated(arguments[0], arguments[1:])
        if origin in (Union, UnionType):
            return Union[tuple(map(self.of, arguments))]  # noqa: UP007 - of types that are a dynamic type
        if origin in _COLLECTIONS:
            return origin[tuple(each if each is ... else self.of(each) for each in arguments)]
        if origin is Literal or declared is Any or declared in (None, *_COLLECTIONS):
            return declared
        if hasattr(declared, "__supertype__"):
            return self.of(declared.__supertype__)
        if is_model(declared):
            return self._description.add(declared)
        if is_class(declared) and issubclass(declared, Enum):
            values = tuple(member.value for member in declared)
            return Literal[values] if self._model.model_config.get("use_enum_values") else declared
        if declared in _PLAIN or declared in _NARROWED:
            return _NARROWED.get(declared, declared)
        raise DeclarationError(self._refusal(declared))

    def _refusal(self, declared: Any) -> str:
        if declared is bytes:
            return (
                f"{self._place} is bytes, which pydantic reads from JSON as text, and other readers as base64. Declare a str, or the record as a "
                "penstock.Record."
            )
        name = getattr(declared, "__qualname__", declared)
        return (
            f"{self._place} has a type that the formats and the warehouse do not have: {name}. Use int, float, str, bool, datetime, date, Decimal, UUID, enums, "
            "literals, lists, dicts, other models, or one of these | None."
        )
