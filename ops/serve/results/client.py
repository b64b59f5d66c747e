"""A client of the query server: `penstock.query`."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ....processors import PenstockError
from ....processors.time import MILLISECOND
from ....state import DeadlineConnection, is_http_address
from .answers import Keys, ProcessorInfo, Row, Rows

DEFAULT_URL = "http://127.0.0.1:8730"
Time = int | datetime
"""A time: milliseconds since 1970 or a datetime; UTC without a time zone."""
Answer = TypeVar("Answer")
_OTHER_SERVER = "The server answered with {}, so it is no server of this version. Check its address."


class QueryFailed(PenstockError):
    """The server refused a query: correct the query or the token."""


class ServerUnavailable(PenstockError):
    """No server answers, or none has read all earlier results yet: ask again."""


class _Failure(msgspec.Struct, frozen=True):
    """The answer to a refused query."""

    message: str = "The server returned no reason."


class _Processors(msgspec.Struct, frozen=True):
    """The answer with all processors."""

    processors: list[ProcessorInfo]


class QueryClient:
    """Queries one of several equal servers, over one connection. For one thread; close it, or use it as a context.

    Args:
        urls: the addresses of the servers. If one does not answer, the next one is asked.
        token: the token of the servers.
        timeout_s: the time for an answer, and then for each 64 KiB of its body, in seconds.
        ca_file: the certificates that the client trusts (PEM), for HTTPS; by default the ones of the system.

    Raises:
        QueryFailed: an address is invalid, or the certificates cannot be read.

    Examples:
        >>> with QueryClient("http://127.0.0.1:8730") as client:  # doctest: +SKIP
        ...     client.latest("views_per_page", "/")
        Row(key='/', window=WindowBounds(start=0, end=300000), event_time=0, result={'page': '/', 'views': 2})
    """

    def __init__(
        self, *urls: str, token: str | None = None, timeout_s: float = 10.0, ca_file: str | Path | None = None
    ) -> None:
        self._urls = list(urls or (DEFAULT_URL,))
        for url in self._urls:
            if not is_http_address(url):
                raise QueryFailed(f"{url!r} is no address of a query server. Pass one such as {DEFAULT_URL}.")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_s = timeout_s
        self._tls = None if ca_file is None else trusting(ca_file)
        self._connection: DeadlineConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The next query opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def processors(self) -> list[ProcessorInfo]:
        """Return the served processors.

        Raises:
            QueryFailed: the server refused the query.
            ServerUnavailable: no server answers.
        """
        return self._get("/v1/processors", {}, _Processors).processors

    def latest(self, processor: str, key: str, *, at: Time | None = None) -> Row | None:
        """Return the result of a key: of its last window, or of the window that contains a time; None without one.

        Raises:
            QueryFailed: the server refused the query.
            ServerUnavailable: no server answers.
        """
        found = self.results(processor, key, at=at).results
        return found[0] if found else None

    def results(
        self,
        processor: str,
        *keys: str,
        at: Time | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        last: timedelta | None = None,
        limit: int | None = None,
    ) -> Rows:
        """Return the results of keys, in order of keys and time, and how far they are behind.

        Args:
            processor: the processor.
            keys: the keys, at most 1,000.
            at: only windows that contain this time.
            begin: windows that overlap the time span from here on.
            end: its end; by default now.
            last: the same for a time span that ends now. Without times, the last window of each key.
            limit: the largest number of results of a key; by default 100, the last ones.

        Raises:
            QueryFailed: the server refused the query.
            ServerUnavailable: no server answers.
        """
        parameters = {"key": list(keys), **_when(at, begin, end, last), "limit": limit}
        return self._get(_path(processor, "results"), parameters, Rows)

    def top(
        self,
        processor: str,
        count: int = 10,
        *,
        by: str | None = None,
        at: Time | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        last: timedelta | None = None,
    ) -> Rows:
        """Return the records with the largest values over all keys, the largest first.

        Args:
            processor: the processor.
            count: the number of records.
            by: the field that ranks; not needed if there is only one numeric field.
            at: only windows that contain this time; without times, the last window.
            begin: windows that overlap the time span from here on.
            end: its end; by default now.
            last: the same for a time span that ends now.

        Raises:
            QueryFailed: the server refused the query.
            ServerUnavailable: no server answers.
        """
        parameters = {"count": count, "by": by, **_when(at, begin, end, last)}
        return self._get(_path(processor, "top"), parameters, Rows)

    def keys(self, processor: str, *, prefix: str = "", last: timedelta | None = None) -> Iterator[str]:
        """Yield the keys in order, page by page.

        Args:
            processor: the processor.
            prefix: only keys that begin with this text.
            last: only keys with a window that overlaps this time span before now.

        Raises:
            QueryFailed: the server refused the query.
            ServerUnavailable: no server answers.
        """
        after: str | None = ""
        while after is not None:
            parameters = {"after": after, "prefix": prefix, "limit": 1_000, **_when(None, None, None, last)}
            page = self._get(_path(processor, "keys"), parameters, Keys)
            yield from page.keys
            after = page.next

    def _get(self, path: str, parameters: Mapping[str, Any], answer: type[Answer]) -> Answer:
        given = {name: value for name, value in parameters.items() if value is not None}
        target = f"{path}?{urlencode(given, doseq=True)}"
        errors = []
        for _ in self._urls:
            try:
                status, body = self._request(target)
            except (OSError, HTTPException) as error:
                errors.append(f"{self._urls[0]}: {type(error).__name__}: {error}.")
            else:
                if status == HTTPStatus.OK:
                    return answer_in(body, answer)
                if status != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise QueryFailed(failure_reason(body, status))
                errors.append(failure_reason(body, status))
            self.close()
            self._urls.append(self._urls.pop(0))
        raise ServerUnavailable(
            f"No query server answers. {' '.join(errors)} Check that `penstock serve results` runs, and its address."
        )

    def _request(self, target: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer. A connection that the server has closed meanwhile is opened again once."""
        was_open = self._connection is not None
        connection = self._connection or DeadlineConnection(self._urls[0], self._timeout_s, self._tls)
        self._connection = connection
        try:
            return connection.request("GET", target, headers=self._headers)
        except TimeoutError:
            self.close()
            raise
        except (OSError, HTTPException):
            self.close()
            if not was_open:
                raise
        return self._request(target)


def trusting(ca_file: str | Path) -> ssl.SSLContext:
    """Return a context that trusts the certificates in a file.

    Raises:
        QueryFailed: the file cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise QueryFailed(
            f"The certificates in {ca_file} cannot be read: {error}. Nothing was asked. Pass a file in PEM format."
        ) from error


def _path(processor: str, what: str) -> str:
    return f"/v1/processors/{quote(processor, safe='')}/{what}"


def _when(at: Time | None, begin: Time | None, end: Time | None, last: timedelta | None) -> dict[str, Any]:
    """Return the parameters of a time."""
    seconds = None if last is None else f"{max(1, round(last.total_seconds()))}s"
    return {"at": _to_ms(at), "from": _to_ms(begin), "to": _to_ms(end), "last": seconds}


def _to_ms(time: Time | None) -> int | None:
    if not isinstance(time, datetime):
        return time
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)) // MILLISECOND


def answer_in(body: bytes, answer: type[Answer]) -> Answer:
    """Return the answer that a server gave with status 200.

    Raises:
        QueryFailed: it is none of this version's servers, such as a page for people.
    """
    try:
        return msgspec.json.decode(body, type=answer)
    except msgspec.MsgspecError:
        raise QueryFailed(_OTHER_SERVER.format("something else than results")) from None


def failure_reason(body: bytes, status: int) -> str:
    """Return why a server refused a request."""
    try:
        return msgspec.json.decode(body, type=_Failure).message
    except msgspec.MsgspecError:
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return "It has too many connections."
        return _OTHER_SERVER.format(f"status {status}")
