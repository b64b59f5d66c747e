"""The HTTP interface of a Laser table, for clients without a Redis library.

GET  /v1/values?key=UA&key=DL     the values of keys
POST /v1/values                   the same: {"keys": ["UA", "DL"]}
GET  /health                      whether every bucket is served

Each answer has the header `Penstock-Lag`: how many offsets it is behind the end of the category, or `unknown`.
For a warehouse table, the header is `Penstock-Day`: the day of all values.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....processors import PenstockError, counted
from ...http import Access, JsonAnswer, create_application, decoded_body
from ...shell import MachineClock, SystemClock
from .pairs import NotServed, Pairs

VALUES, HEALTH = "/v1/values", "/health"
LAG = "Penstock-Lag"
"""The header with the lag."""
DAY = "Penstock-Day"
"""The header with the day of a warehouse table."""
UNKNOWN = "unknown"
MAX_KEYS = 1_000
LAG_AGE_S = 1.0
"""The age at which a lag is asked for again."""


class _Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[str]


class BadRequest(PenstockError):
    """A request is invalid: correct it."""


class LagReader:
    """Returns the lag of a table without asking Kafka for each request.

    Args:
        pairs: the pairs of the table.
        clock: the clock.
    """

    def __init__(self, pairs: Pairs, clock: MachineClock | None = None) -> None:
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


def create_api(pairs: Pairs, access: Access) -> Starlette:
    """Return the web application of a table.

    Args:
        pairs: its pairs.
        access: the access rules.
    """
    lag = LagReader(pairs)

    async def health(request: Request) -> Response:  # noqa: ARG001 - the signature of a handler
        day = {} if pairs.day is None else {"day": pairs.day, "problem": pairs.problem}
        return JsonAnswer({"ready": pairs.is_complete, **day}, 200 if pairs.is_complete else 503)

    async def values(request: Request) -> Response:
        keys = await _keys_of_body(request) if request.method == "POST" else _keys_of_query(request)
        if not 1 <= len(keys) <= MAX_KEYS:
            raise BadRequest(f"The request asks for {counted(len(keys), 'key')}. Ask for 1 to {MAX_KEYS:,}.")
        found = _values(pairs, keys)
        age = {LAG: await lag.text()} if pairs.day is None else {DAY: pairs.day}
        return JsonAnswer({"values": found}, headers=age)

    return create_application(
        [Route(VALUES, values, methods=["GET", "POST"]), Route(HEALTH, health)],
        access,
        {BadRequest: 400, NotServed: 503},
        open_paths={HEALTH},
        advice=f"Ask with GET {VALUES}?key=…, or POST {VALUES} with JSON: {{keys: […]}}.",
    )


def _values(pairs: Pairs, keys: Sequence[str]) -> dict[str, Any]:
    found = pairs.fetch([key.encode() for key in keys])
    return {key: None if pair is None else _shown(pairs, pair.value) for key, pair in zip(keys, found, strict=True)}


def _shown(pairs: Pairs, value: bytes) -> Any:
    return value.decode() if pairs.is_text else msgspec.Raw(value)


def _keys_of_query(request: Request) -> list[str]:
    try:
        query = request.scope["query_string"].decode("ascii")
        found = parse_qs(query, keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise BadRequest("The query string is no UTF-8. Encode it as a URL.") from error
    if found.keys() - {"key"}:
        raise BadRequest(f"The parameters {', '.join(sorted(found))} are not known. Repeat `key` for each key.")
    return found.get("key", [])


async def _keys_of_body(request: Request) -> list[str]:
    # Browsers name the origin, and ask before they send JSON to another site.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadRequest('The content type is not application/json. Send JSON: {"keys": ["UA"]}.')
    return (await decoded_body(request, _Keys, BadRequest)).keys
