"""Requests to an HTTP endpoint: their repetition, and what each answer means."""

from __future__ import annotations

import hashlib
import http.client
import logging
import time
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

import msgspec

from ...processors import CallRetry, counted
from ...processors.declare import RefusedRow, Semantics, SinkBatch, SinkRefused, SinkUnreachable
from ...processors.models import encode_model
from ..addresses import host_of
from ..http_exchange import HttpAnswer, exchange

RETRY_LIMIT_S = 15.0
"""The time limit of a request that is repeated. Then the worker returns to its last checkpoint and waits."""
MAX_WAIT_S = 3_600.0
"""The longest time for which the worker waits because a `Retry-After` asks for it."""
MOST_REFUSED = 100
"""The number of refused rows in a row at which the worker stops: then the endpoint or the record type is wrong, not the rows."""
_OUTAGES = (408, 429)
_ROWS_REFUSED = (400, 409, 413, 422)
"""The statuses by which an endpoint refuses the content of a request."""
_LOG = logging.getLogger("penstock.worker")
_encode = msgspec.json.Encoder(enc_hook=encode_model).encode


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _basic(url: str) -> dict[str, str]:
    """Return the header for the user and the password of a URL, which the client does not send itself."""
    user, found, _ = urlsplit(url).netloc.rpartition("@")
    return {"Authorization": f"Basic {b64encode(unquote(user).encode()).decode()}"} if found else {}


class _Interrupted(Exception):
    """A request whose outcome is unknown, or that the endpoint asks to repeat."""


class _RowsRefused(Exception):
    """The endpoint refuses the content of a request."""


class HttpWriter:
    """One worker's writer.

    Args:
        url: the address.
        token: the token for `Authorization: Bearer`; None for no token.
        most_rows: the number of rows in a request.
        limit_s: how long the endpoint may take to answer, in seconds.
        retry: repeats interrupted requests.
        stops: whether a refused row stops the worker.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        most_rows: int,
        limit_s: float,
        retry: CallRetry = CallRetry(RETRY_LIMIT_S),  # noqa: B008 - frozen
        stops: bool = False,
    ) -> None:
        self._url = _without_user(url)
        self._host = host_of(url)  # the path of an address in a variable may be a secret
        self._authorization = _basic(url) if token is None else {"Authorization": f"Bearer {token}"}
        self._most_rows = most_rows
        self._limit_s = limit_s
        self._retry = retry
        self._stops = stops
        self._refused_in_a_row: dict[int, int] = {}
        self._resumes_s = 0.0  # by the clock of the retry

    def claim(self, processor: str, bucket: int) -> str:  # noqa: ARG002 - an endpoint has no positions
        """Return no position. While the endpoint asks to wait, the shard cannot be claimed."""
        wait_s = self._resumes_s - self._retry.clock()
        if wait_s > 0:
            raise SinkUnreachable(
                f"{self._host} asks to wait for {wait_s:,.0f} s (Retry-After). The worker waits; nothing is lost."
            )
        return ""

    def write(self, batch: SinkBatch) -> Sequence[RefusedRow]:
        """Send the rows in requests of limited size. At most once, no request is repeated. Return the rows that the endpoint refuses."""
        refused: list[RefusedRow] = []
        for begin in range(0, len(batch.rows), self._most_rows):
            refused += self._sent(batch, batch.rows[begin : begin + self._most_rows])
        return refused

    def _sent(self, batch: SinkBatch, rows: Sequence[Any]) -> list[RefusedRow]:
        """Send rows in one request, or in halves of it until the rows that the endpoint refuses are found."""
        try:
            self._send(batch, rows)
        except _RowsRefused as error:
            if self._stops:
                raise SinkRefused(
                    f"{error} The worker stops; the position is before these rows, except with at-most-once outputs. Correct the endpoint or the rows, "
                    "and start again; or declare `on_refused = penstock.ErrorPolicy.DEAD_LETTER`."
                ) from error
            if len(rows) == 1:
                return [self._refused(batch, rows[0], str(error))]
        else:
            self._refused_in_a_row[batch.bucket] = 0
            return []
        middle = len(rows) // 2
        return self._sent(batch, rows[:middle]) + self._sent(batch, rows[middle:])

    def _refused(self, batch: SinkBatch, row: Any, reason: str) -> RefusedRow:
        in_a_row = self._refused_in_a_row.get(batch.bucket, 0) + 1
        self._refused_in_a_row[batch.bucket] = in_a_row
        if in_a_row >= MOST_REFUSED:
            raise SinkRefused(
                f"{self._host} has refused the last {counted(in_a_row, 'row')} of bucket {batch.bucket}, so the cause is rarely the rows. The last answer: {reason} The "
                "worker stops; the position is before these rows, except with at-most-once outputs. Correct the endpoint or the record type, and start again."
            )
        return RefusedRow(row, reason)

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def _send(self, batch: SinkBatch, rows: Sequence[Any]) -> None:
        body = _encode(rows)
        place = f"{batch.processor}/{batch.bucket} {sorted(batch.first.items())} ".encode()
        # It depends on the rows: after a crash, a batch may begin at the same offsets and contain other rows.
        key = hashlib.sha256(place + body).hexdigest()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "penstock"}
        request = urllib.request.Request(self._url, body, headers | self._authorization, method="POST")  # noqa: S310 - checked when it is opened
        try:
            if batch.semantics is Semantics.AT_MOST_ONCE:
                self._attempt(request)
            else:
                self._retry.call(lambda: self._attempt(request), _Interrupted, lambda error: _LOG.warning("%s", error))
        except _Interrupted as error:
            consequence = (
                f"{counted(len(rows), 'row')} may be lost, since at-most-once rows are not sent again."
                if batch.semantics is Semantics.AT_MOST_ONCE
                else f"{self._retry.summary} The position was not saved, so the rows are sent again: nothing is lost."
            )
            raise SinkUnreachable(f"{error} {consequence}") from error

    def _attempt(self, request: urllib.request.Request) -> None:
        self._wait_until_asked()
        try:
            answer = exchange(request, self._limit_s)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise _Interrupted(f"{self._host} did not answer: {reason}.") from error
        if not answer.is_accepted:
            self._refuse(answer)

    def _wait_until_asked(self) -> None:
        """Wait for as long as the endpoint has asked; if that is longer than requests are repeated, let the worker wait."""
        wait_s = self._resumes_s - self._retry.clock()
        if wait_s > self._retry.limit_s:
            raise SinkUnreachable(
                f"{self._host} asks to wait for {wait_s:,.0f} s (Retry-After). The position was not saved, except with at-most-once outputs. The worker "
                "returns to its last checkpoint and waits."
            )
        if wait_s > 0:
            self._retry.pause(wait_s)

    def _refuse(self, answer: HttpAnswer) -> NoReturn:
        if answer.status in _OUTAGES or answer.status >= 500:
            self._resumes_s = self._retry.clock() + _retry_after_s(answer.headers.get("Retry-After"))
            raise _Interrupted(f"{self._host} answered with {answer}.")
        what = f"{self._host} refuses rows with {answer}: {answer.text or 'no text'}."
        if answer.status in _ROWS_REFUSED:
            raise _RowsRefused(what)
        raise SinkRefused(
            f"{what} The worker stops; the position is before these rows, except with at-most-once outputs. Correct the address, the token or the "
            "endpoint, and start again."
        )


def _retry_after_s(header: str | None) -> float:
    """Return the seconds that a `Retry-After` asks for: a number, or a date; 0 without one."""
    if not header:
        return 0.0
    text = header.strip()
    if text.isdecimal():
        return min(float(text), MAX_WAIT_S)
    try:
        return min(max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0), MAX_WAIT_S)
    except (ValueError, OverflowError):
        return 0.0
