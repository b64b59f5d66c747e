"""Rows in Redis: a hash or a JSON object for each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from ...processors.lookups import InvalidRow, LookupUnreachable, RowShape
from ..errors import StateError
from ..remote import REDIS, StoreInterrupted, expect_library
from .address import DEFAULT_VARIABLE, address_named, expect_time, lookup_refused

if TYPE_CHECKING:
    from ..remote import RedisConnection


class RedisForm(Enum):
    """The representation of a row in Redis."""

    HASH = "hash"
    """A hash with the row's fields as text."""
    JSON = "json"
    """A string with a JSON object."""


@dataclass(frozen=True)
class RedisTable:
    """Rows in Redis or a Redis Cluster, each at its key with a prefix.

    Args:
        prefix: the prefix of the keys: with `airport:`, the row of `JFK` is at `airport:JFK`.
        row: the type of the rows.
        form: their representation.
        at: the environment variable with the address, redis://:password@host:6379/0, or rediss:// over TLS; or the address.
        time_limit: the limit of each request, and of connecting.

    Raises:
        DeclarationError: `row` is not a supported type, or the time limit is not above zero.
    """

    prefix: str
    row: type[msgspec.Struct]
    form: RedisForm = RedisForm.HASH
    at: str = field(default=DEFAULT_VARIABLE, repr=False)
    time_limit: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        RowShape(self.row)
        expect_time(self, self.time_limit)

    def open(self) -> RedisRows:
        """Return a client. The first request connects.

        Raises:
            LookupRefused: the address is missing or of another kind.
        """
        address = address_named(self.at, REDIS, str(self))
        try:
            expect_library("redis", "redis", address)
        except StateError as error:
            raise lookup_refused(error, str(self)) from error
        from ..remote import RedisConnection  # noqa: PLC0415 - imports redis

        rights = f"the keys {self.prefix}*"
        return RedisRows(RedisConnection(address, rights=rights, limit_s=self.time_limit.total_seconds()), self)

    def __str__(self) -> str:
        return f"{self.prefix}* of Redis" if self.prefix else "Redis"


class RedisRows:
    """Rows in Redis; for one thread. A broken connection is replaced.

    Args:
        connection: the connection.
        table: the declaration.
    """

    def __init__(self, connection: RedisConnection, table: RedisTable) -> None:
        self._connection = connection
        self._table = table
        self._shape = RowShape(table.row)

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the rows of the keys; keys without a row are missing."""
        try:
            with self._connection.client() as client:
                answers = self._answers(client, keys or [""])  # without keys, check the access
        except StoreInterrupted as error:
            raise LookupUnreachable(f"{self._table} did not answer. {error}") from error
        except StateError as error:
            raise lookup_refused(error, str(self._table)) from error
        return {key: self._row(key, answer) for key, answer in zip(keys, answers, strict=False) if answer}

    def _answers(self, client: Any, keys: Sequence[str]) -> list[Any]:
        # A pipeline, not MGET: in a cluster, the keys of one command must be on one node.
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            (pipeline.hgetall if self._table.form is RedisForm.HASH else pipeline.get)(self._table.prefix + key)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not _is_other_kind(answer):
                raise answer
        return answers

    def _row(self, key: str, answer: Any) -> Any:
        place = f"the row of {key!r} in {self._table}"
        if isinstance(answer, Exception):
            return InvalidRow(f"{place} is not a {self._table.form.value}: {answer}")
        try:
            if self._table.form is RedisForm.JSON:
                return self._shape.from_json(answer, place)
            return self._shape.from_texts({name.decode(): text.decode() for name, text in answer.items()}, place)
        except UnicodeDecodeError as error:
            return InvalidRow(f"{place} is not in UTF-8: {error}")
        except InvalidRow as error:
            return error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _is_other_kind(answer: Exception) -> bool:
    return str(answer).startswith("WRONGTYPE")
