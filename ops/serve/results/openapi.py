"""The OpenAPI document of the query server, from the types of its answers and of the served records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from ....processors.declare import members_of
from ....processors.models import described
from .answers import Keys, ProcessorInfo, Rows
from .parameters import DEFAULT_LIMIT, MAX_LIMIT
from .queries import DEFAULT_TOP
from .served import ServedProcessor

_REFERENCE = "#/components/schemas/{name}"
_TIME = "Milliseconds since 1970, or an ISO time (UTC without an offset)."
_DESCRIPTIONS = {
    "key": "A key; repeat it for several keys.",
    "at": f"The windows that contain this time. {_TIME}",
    "from": f"The windows that overlap a time span, from here on. {_TIME}",
    "to": f"The end of the time span; the default is now. {_TIME}",
    "last": "The windows that overlap the last 30s, 5m, 2h or 7d.",
    "limit": f"The largest number of results of each key, or of keys; the default is {DEFAULT_LIMIT}.",
    "count": f"The number of records; the default is {DEFAULT_TOP}.",
    "by": "The numeric field that ranks; not needed if there is only one.",
    "after": "Only keys after this one: `next` of the page before.",
    "prefix": "Only keys that begin with this text.",
}
_NUMBERS = ("limit", "count")
_WHEN = ("at", "from", "to", "last")
_ERRORS = {"400": "A parameter is invalid.", "503": "The server has not read all earlier results yet."}


def openapi(served: Collection[ServedProcessor]) -> dict[str, Any]:
    """Return the document for these processors. The paths contain their names, so a generated client has a method for each."""
    records = [described(members_of(each.category.record)[0]) for each in served]
    # Records of one name in two modules get longer names, so references are looked up.
    (_, _, _, *references), schemas = msgspec.json.schema_components(
        [Rows, Keys, ProcessorInfo, *records], schema_hook=lambda _: {}, ref_template=_REFERENCE
    )
    paths: dict[str, Any] = {
        "/ready": {"get": _operation("Whether the server answers.", "ready", (), {"type": "object"})},
        "/v1/processors": {
            "get": _operation(
                "The served processors.",
                "processors",
                (),
                {
                    "type": "object",
                    "properties": {"processors": {"type": "array", "items": _reference("ProcessorInfo")}},
                },
            )
        },
    }
    for each, record in zip(served, references, strict=True):
        paths |= _paths_of(each, record)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock: results of processors", "version": "1"},
        "paths": paths,
        "components": {"schemas": dict(schemas), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _paths_of(served: ServedProcessor, record: Mapping[str, Any]) -> Mapping[str, Any]:
    base, identifier = f"/v1/processors/{served.name}", served.name.replace(".", "_")
    rows = {
        "allOf": [
            _reference("Rows"),
            {
                "properties": {
                    "results": {"type": "array", "items": {"properties": {"result": record}}},
                }
            },
        ]
    }
    return {
        base: {"get": _operation(f"Facts about {served.name}.", identifier, (), _reference("ProcessorInfo"))},
        f"{base}/results": {
            "get": _operation(
                f"Results of {served.name} by key.", f"{identifier}_results", ("key", *_WHEN, "limit"), rows
            )
        },
        f"{base}/top": {
            "get": _operation(
                f"The largest results of {served.name}.", f"{identifier}_top", ("by", "count", *_WHEN), rows
            )
        },
        f"{base}/keys": {
            "get": _operation(
                f"Keys of {served.name}.",
                f"{identifier}_keys",
                ("after", "prefix", "limit", *_WHEN),
                _reference("Keys"),
            )
        },
    }


def _reference(name: str) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=name)}


def _operation(summary: str, identifier: str, parameters: Sequence[str], answer: Mapping[str, Any]) -> dict[str, Any]:
    failures = {code: {"description": text} for code, text in _ERRORS.items()} if parameters else {}
    return {
        "summary": summary,
        "operationId": identifier,
        "parameters": [_parameter(name) for name in parameters],
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {"schema": answer}}},
            **failures,
        },
    }


def _parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name in _NUMBERS:
        schema = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
    elif name == "key":
        schema = {"type": "array", "items": {"type": "string"}}
    return {
        "name": name,
        "in": "query",
        "required": name == "key",
        "description": _DESCRIPTIONS[name],
        "schema": schema,
    }
