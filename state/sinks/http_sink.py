"""An HTTP endpoint as a sink: its declaration."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from ...processors import DeclarationError
from ...processors.declare import ErrorPolicy, RecordType, Semantics, Sink, SinkRefused
from ..addresses import is_http_address, split_address
from ..remote import url_named

if TYPE_CHECKING:
    from .http_writer import HttpWriter


@dataclass(frozen=True)
class HttpSink(Sink):
    """An HTTP endpoint, which receives rows as JSON arrays by POST, at least once or at most once.

    Each request has the header `Idempotency-Key`, which is equal for a repeated request with the same rows. The endpoint answers with a status of
    200 to 299 after it has stored the rows. The statuses 408, 429 and 500 to 599, and no answer, are an outage: the worker repeats the request, no
    earlier than a header `Retry-After` asks, then returns to its last checkpoint and waits. The statuses 400, 409, 413 and 422 refuse rows: the
    worker finds them with smaller requests. Any other status stops the worker.

    Args:
        at: the environment variable with the address, or the address, https://host/path, perhaps with user:password@ for basic authentication.
        record: the type of the rows.
        token: the environment variable with a token for `Authorization: Bearer`; None for no token.
        most_rows: the number of rows in a request.
        time_limit: how long the endpoint may take to answer a request.
        on_refused: what happens to a row that the endpoint refuses: it goes to the dead letters of the processor, or the worker stops. It also
            stops at 100 refused rows in a row.

    Raises:
        DeclarationError: a limit is not greater than zero.

    Examples:
        >>> import penstock as ps
        >>> class Total(ps.Record, frozen=True):
        ...     user: str
        >>> HttpSink("https://team.example/totals?key=secret", Total).name
        'HTTP endpoint https://team.example/totals'
    """

    at: str = field(repr=False)
    record: RecordType
    token: str | None = None
    most_rows: int = 1_000
    time_limit: timedelta = timedelta(seconds=10)
    on_refused: ErrorPolicy = ErrorPolicy.DEAD_LETTER

    def __post_init__(self) -> None:
        if self.most_rows < 1 or self.time_limit <= timedelta():
            raise DeclarationError(f"{self.name}: `most_rows` and `time_limit` must be greater than zero.")

    @property
    def name(self) -> str:
        """The name for messages and `penstock.To`, without user, password and query."""
        return f"HTTP endpoint {public_address(self.at) if '://' in self.at else f'in {self.at}'}"

    @property
    def semantics(self) -> frozenset[Semantics]:
        """At least once and at most once."""
        return frozenset({Semantics.AT_LEAST_ONCE, Semantics.AT_MOST_ONCE})

    @property
    def keeps_each_row(self) -> bool:
        """No: the receiver decides."""
        return False

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables with the address and the token."""
        address = () if "://" in self.at else (self.at,)
        return address if self.token is None else (*address, self.token)

    def open(self) -> HttpWriter:
        """Return a writer.

        Raises:
            SinkRefused: a variable is not set, or the address is of another kind.
        """
        from .http_writer import HttpWriter  # noqa: PLC0415 - imports an HTTP client

        for variable in self.variables:
            if not os.environ.get(variable):
                raise SinkRefused(
                    f"The {self.name} needs the environment variable {variable}, which is not set here. Nothing was read or written. Set it for every worker."
                )
        url = url_named(self.at)
        if not is_http_address(url):
            raise SinkRefused(
                f"The {self.name} cannot be written: its address is not a valid URL of HTTP. Nothing was read or written. Use https://host/path."
            )
        token = None if self.token is None else os.environ[self.token]
        return HttpWriter(
            url,
            token,
            most_rows=self.most_rows,
            limit_s=self.time_limit.total_seconds(),
            stops=self.on_refused is ErrorPolicy.STOP,
        )


def public_address(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    parts = split_address(url)
    if parts is None:
        return "with an invalid address"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
