"""Which types are pydantic models, and the base of the structs that describe them. This module does not import pydantic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import msgspec

from ..validation import is_class

if TYPE_CHECKING:
    from pydantic import BaseModel


class ModelStruct(msgspec.Struct):
    """Base class of the structs that describe models."""

    model: ClassVar[type[Any]]


def is_model(candidate: object) -> TypeGuard[type[BaseModel]]:
    """Return whether a type is a pydantic model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and is_class(candidate) and issubclass(candidate, pydantic.BaseModel)
