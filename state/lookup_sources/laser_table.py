"""Rows of a Laser table, from any of its servers.

fetch --one MGET--> the server that answered last --unreachable, or still reading--> the next one, and so on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ...processors.lookups import InvalidRow, LookupUnreachable, RowShape
from ..errors import StateError
from ..remote import REDIS, StoreAddress, StoreInterrupted, expect_library, url_named
from .address import address_named, expect_time, lookup_refused

if TYPE_CHECKING:
    from ..remote import RedisConnection


@dataclass(frozen=True)
class LaserTable:
    """Rows of a Laser table, read from one of its servers. If it does not answer, the next one is asked.

    A row with one field is the value of a table with one value column; other rows are JSON objects with the value columns.

    Args:
        at: the addresses of the servers, redis://127.0.0.1:8720,redis://127.0.0.1:8721, or the environment variable with them.
        row: the type of the rows.
        time_limit: the limit of each request to a server, and of connecting.

    Raises:
        DeclarationError: `row` is not a supported type, or the time limit is not above zero.
    """

    at: str = field(repr=False)
    row: type[msgspec.Struct]
    time_limit: timedelta = timedelta(seconds=2)

    def __post_init__(self) -> None:
        RowShape(self.row)
        expect_time(self, self.time_limit)

    def open(self) -> LaserRows:
        """Return a client. The first request connects.

        Raises:
            LookupRefused: an address is missing or of another kind.
        """
        addresses = self._addresses()
        try:
            expect_library("redis", "redis", addresses[0])
        except StateError as error:
            raise lookup_refused(error, str(self)) from error
        from ..remote import RedisConnection  # noqa: PLC0415 - imports redis

        limit_s = self.time_limit.total_seconds()
        return LaserRows([RedisConnection(each, rights="the table", limit_s=limit_s) for each in addresses], self)

    def _addresses(self) -> list[StoreAddress]:
        parts = [part.strip() for part in url_named(self.at).split(",") if part.strip()] or [self.at]
        return [address_named(part, REDIS, str(self)) for part in parts]

    def __str__(self) -> str:
        return f"the Laser table of {self.row.__name__}"


class LaserRows:
    """Rows of a Laser table; for one thread.

    Args:
        servers: the servers. Each has all rows.
        table: the declaration.
    """

    def __init__(self, servers: Sequence[RedisConnection], table: LaserTable) -> None:
        self._servers = list(servers)
        self._table = table
        self._shape = RowShape(table.row)

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the rows of the keys; keys without a row are missing."""
        values = self._values(list(keys) or [""])  # without keys, check the access
        return {key: self._row(key, value) for key, value in zip(keys, values, strict=False) if value is not None}

    def _values(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys from the first server that answers, which is asked first from now on."""
        failures = list[str]()
        for server in list(self._servers):
            try:
                with server.client() as client:
                    found: list[bytes | None] = client.mget(keys)
            except StoreInterrupted as error:
                failures.append(str(error))
            except StateError as error:
                raise lookup_refused(error, str(self._table)) from error
            else:
                self._servers.remove(server)
                self._servers.insert(0, server)
                return found
        raise LookupUnreachable(f"No server of {self._table} answered. {' '.join(failures)}")

    def _row(self, key: str, value: bytes) -> Any:
        place = f"the row of {key!r} in {self._table}"
        try:
            if len(self._shape.fields) > 1:
                return self._shape.from_json(value, place)
            return self._shape.from_texts(self._single(value), place)
        except UnicodeDecodeError as error:
            return InvalidRow(f"{place} is not in UTF-8: {error}")
        except InvalidRow as error:
            return error

    def _single(self, value: bytes) -> Mapping[str, str]:
        return dict.fromkeys(self._shape.fields, value.decode())

    def close(self) -> None:
        """Close the connections."""
        for server in self._servers:
            server.close()
