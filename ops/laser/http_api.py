"""The HTTP interface of a Laser table, for clients without a Redis library.

GET  /v1/values?key=UA&key=DL     the values of keys
POST /v1/values                   the same: {"keys": ["UA", "DL"]}
GET  /health                      whether every bucket is served

Each answer has the header `Penstock-Lag`: how many offsets it is behind the end of the category, or `unknown`.
For a warehouse table, the header is `Penstock-Day`: the day of all values.
"""

from __future__ import annotations

import logging
from asyncio import to_thread
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from ...processors.errors import PenstockError
from ...processors.wording import counted
from ..clock import Clock, SystemClock
from ..serving.access import Access
from .pairs import NotServed, Pairs

_LOG = logging.getLogger("penstock.laser")
VALUES, HEALTH = "/v1/values", "/health"
LAG = "Penstock-Lag"
"""The header with the lag."""
DAY = "Penstock-Day"
"""The header with the day of a warehouse table."""
UNKNOWN = "unknown"
MAX_KEYS = 1_000
MAX_BODY = 1 << 20
"""The largest body of a request, in bytes."""
LAG_AGE_S = 1.0
"""The age at which a lag is asked for again."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[str]


class Answer(NamedTuple):
    """A status code and a JSON value."""

    status: int
    value: Any


class BadRequest(PenstockError):
    """A request is invalid: correct it."""


class LagReader:
    """Returns the lag of a table without asking Kafka for each request.

    Args:
        pairs: the pairs of the table.
        clock: the clock.
    """

    def __init__(self, pairs: Pairs, clock: Clock | None = None) -> None:
        self._pairs = pairs
        self._clock = clock or SystemClock()
        self._text, self._read_s = UNKNOWN, float("-inf")

    async def text(self) -> str:
        """Return the lag in offsets, at most a second old; `unknown` while Kafka does not answer."""
        if self._clock.monotonic_s() - self._read_s >= LAG_AGE_S:
            self._read_s = self._clock.monotonic_s()  # first, so that concurrent requests do not ask as well
            try:
                self._text = str(await to_thread(self._pairs.events_behind))
            except PenstockError:
                self._text = UNKNOWN
        return self._text


class LaserApi:
    """The ASGI application of a table.

    Args:
        pairs: its pairs.
        access: the access rules.
    """

    def __init__(self, pairs: Pairs, access: Access) -> None:
        self._pairs = pairs
        self._access = access
        self._lag = LagReader(pairs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        answer = await self._answer(scope, receive)
        body = msgspec.json.encode(answer.value)
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"content-length", str(len(body)).encode()),
        ]
        if scope["path"] == VALUES and answer.status == 200:
            headers.append(await self._staleness())
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _staleness(self) -> tuple[bytes, bytes]:
        if self._pairs.day is not None:
            return DAY.lower().encode(), self._pairs.day.encode()
        return LAG.lower().encode(), (await self._lag.text()).encode()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        if scope["path"] == HEALTH:
            is_complete = self._pairs.is_complete
            return Answer(200 if is_complete else 503, {"ready": is_complete})
        refused = self._access.refusal(dict(scope["headers"]))
        if refused is not None:
            return Answer(401 if self._access.token else 403, {"message": refused})
        if scope["path"] != VALUES or scope["method"] not in {"GET", "POST"}:
            return Answer(404, {"message": f"Ask with GET {VALUES}?key=…, or POST {VALUES} with JSON: {{keys: […]}}."})
        try:
            return Answer(200, {"values": self._values(await _keys(scope, receive))})
        except BadRequest as error:
            return Answer(400, {"message": str(error)})
        except NotServed as error:
            return Answer(503, {"message": str(error)})

    def _values(self, keys: Sequence[str]) -> dict[str, Any]:
        pairs = self._pairs.fetch([key.encode() for key in keys])
        return {key: None if pair is None else self._shown(pair.value) for key, pair in zip(keys, pairs, strict=True)}

    def _shown(self, value: bytes) -> Any:
        return value.decode() if self._pairs.is_text else msgspec.Raw(value)


async def _keys(scope: Scope, receive: Receive) -> list[str]:
    keys = _keys_of_body(scope, await _body(receive)) if scope["method"] == "POST" else _keys_of_query(scope)
    if not 1 <= len(keys) <= MAX_KEYS:
        raise BadRequest(f"The request asks for {counted(len(keys), 'key')}. Ask for 1 to {MAX_KEYS:,}.")
    return keys


def _keys_of_query(scope: Scope) -> list[str]:
    try:
        found = parse_qs(scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise BadRequest("The query string is no UTF-8. Encode it as a URL.") from error
    if found.keys() - {"key"}:
        raise BadRequest(f"The parameters {', '.join(sorted(found))} are not known. Repeat `key` for each key.")
    return found.get("key", [])


def _keys_of_body(scope: Scope, body: bytes) -> list[str]:
    # Browsers name the origin, and ask before they send JSON to another site.
    kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise BadRequest('The content type is not application/json. Send JSON: {"keys": ["UA"]}.')
    try:
        return msgspec.json.decode(body, type=_Keys).keys
    except msgspec.MsgspecError as error:
        raise BadRequest(f'The body is no valid request: {error}. Send {{"keys": ["UA"]}}.') from error


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise BadRequest(f"The request has more than {MAX_BODY:,} bytes. Ask for fewer keys.")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return bytes(body)
