"""Clients of Penstock's servers that reach another one, such as a page to log in behind a proxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from email.message import Message

import pytest

from penstock.ops.http import Answer, SmallHttpServer
from penstock.ops.http.small_server import SmallLimits
from penstock.ops.serve.rows.client import ScubaClient
from penstock.query import QueryClient, QueryFailed

PAGES = {"page": b"<html>Log in</html>", "empty": b"", "other JSON": b'{"status": "ok"}'}


@pytest.fixture(params=PAGES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve the same answer for all paths; return the address."""

    def page(path: str, headers: Message) -> Answer:
        return Answer(200, "text/html", PAGES[request.param])

    server = SmallHttpServer("127.0.0.1", 0, page, SmallLimits())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("address", ["http://[::1", "http://host:port", "http://host:99999", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused_before_a_request(address: str) -> None:
    """An address that Python's parser refuses is refused in the same way."""
    for client in (QueryClient, ScubaClient):
        with pytest.raises(QueryFailed, match="is no address of"):
            client(address)


def test_an_answer_that_is_no_result_is_an_error_with_a_remedy(url: str) -> None:
    """The status 200 does not make a page an answer."""
    for ask in (QueryClient(url).processors, ScubaClient(url).tables):
        with pytest.raises(QueryFailed, match="no server of this version"):
            ask()
