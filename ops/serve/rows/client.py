"""A client of a Scuba server, for the command line."""

from __future__ import annotations

from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ....state import DeadlineConnection, is_http_address
from ..results import QueryFailed, ServerUnavailable, answer_in, failure_reason, trusting
from .answers import Exploration, SqlRows, Tables
from .queries import ExploreQuery, SampleQuery, SqlQuery

DEFAULT_URL = "http://127.0.0.1:8740"
TIMEOUT_S = 60.0
Answer = TypeVar("Answer")


class ScubaClient:
    """Queries a server, with a connection for each query.

    Args:
        url: the address of the server.
        token: its token.
        ca_file: the certificates to trust (PEM), for HTTPS; by default the ones of the system.

    Raises:
        QueryFailed: the address is invalid, or the certificates cannot be read.
    """

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, ca_file: Path | None = None) -> None:
        if not is_http_address(url):
            raise QueryFailed(f"{url!r} is no address of a Scuba server. Pass one such as {DEFAULT_URL}.")
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._tls = None if ca_file is None else trusting(ca_file)

    def tables(self) -> Tables:
        """Return the tables.

        Raises:
            QueryFailed: the server refused the request.
            ServerUnavailable: it does not answer.
        """
        return self._ask("GET", "/tables", None, Tables)

    def explore(self, query: ExploreQuery) -> Exploration:
        """Return aggregates. Raises as `tables`."""
        return self._ask("POST", "/query", query, Exploration)

    def samples(self, query: SampleQuery) -> SqlRows:
        """Return rows of a table. Raises as `tables`."""
        return self._ask("POST", "/samples", query, SqlRows)

    def select(self, sql: str) -> SqlRows:
        """Return the rows of a SELECT. Raises as `tables`."""
        return self._ask("POST", "/sql", SqlQuery(sql), SqlRows)

    def exported(self, query: ExploreQuery | SampleQuery | SqlQuery, form: str) -> bytes:
        """Return the answer to a query as a file: "csv" or "parquet". Raises as `tables`."""
        paths = {ExploreQuery: "/query", SampleQuery: "/samples", SqlQuery: "/sql"}
        return self._send("POST", f"{paths[type(query)]}?format={form}", query)

    def _ask(self, method: str, path: str, query: Any, answer: type[Answer]) -> Answer:
        return answer_in(self._send(method, path, query), answer)

    def _send(self, method: str, path: str, query: Any) -> bytes:
        body = None if query is None else msgspec.json.encode(query)
        connection = DeadlineConnection(self._url, TIMEOUT_S, self._tls)
        try:
            status, found = connection.request(
                method, path, body, {**self._headers, "Content-Type": "application/json"}
            )
        except (OSError, HTTPException) as error:
            raise ServerUnavailable(
                f"No Scuba server answers at {self._url}: {type(error).__name__}: {error}. Check that `penstock serve scuba` runs, and its address."
            ) from error
        finally:
            connection.close()
        if status == HTTPStatus.OK:
            return found
        kind = ServerUnavailable if status == HTTPStatus.SERVICE_UNAVAILABLE else QueryFailed
        if status == HTTPStatus.UNAUTHORIZED:
            raise QueryFailed(
                f"The Scuba server at {self._url} needs its token. Nothing was read. Pass it with --token-file, or set it in the environment variable PENSTOCK_SCUBA_TOKEN."
            )
        raise kind(failure_reason(found, status))
