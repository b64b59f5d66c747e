"""Validation of messages by pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_SHOWN_ERRORS = 3


class ModelReader:
    """Reads pydantic models. The rules of pydantic's JSON mode apply to each format.

    Args:
        model: the type of the records.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        from pydantic import ValidationError  # noqa: PLC0415 - an optional dependency, which models imported
        from pydantic_core import to_json  # noqa: PLC0415 - as above

        self._name = model.__name__
        self._validate = model.__pydantic_validator__.validate_json
        self._invalid, self._to_json = ValidationError, to_json

    def from_json(self, value: bytes) -> Any:
        """Return the record of a JSON object."""
        try:
            return self._validate(value, by_alias=True)
        except self._invalid as error:
            raise msgspec.ValidationError(_short(error)) from error
        except Exception as error:
            raise msgspec.ValidationError(
                f"a validator of {self._name} raised {type(error).__name__}: {error}"
            ) from error

    def from_fields(self, fields: Mapping[str, Any]) -> Any:
        """Return the record with some fields."""
        # NaN stays NaN, which the check of numbers rejects; null could be a valid value.
        return self.from_json(self._to_json(fields, inf_nan_mode="constants", bytes_mode="base64"))


def _short(error: ValidationError) -> str:
    """Return the first messages of pydantic with their places, without the values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [f"{each['msg']}{_place(each['loc'])}" for each in found[:_SHOWN_ERRORS]]
    more = len(found) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _place(location: tuple[int | str, ...]) -> str:
    """Return a place as in other errors: ` - at `$.lines[0].count``."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return f" - at `${steps}`" if steps else ""
