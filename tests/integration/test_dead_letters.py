"""`penstock dead-letters` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from support.cli import Cli
from support.rejected_clicks import correct, counts, rejected_clicks, totals


def test_letters_are_shown_dropped_exported_and_retried_once(cli: Cli, app: Path, prefix: str) -> None:
    """After the correction, each retried message is in the state and in the outputs once. The status counts the pending ones."""

    def reported() -> int | None:
        processors = json.loads(cli.ok("status", str(app), "--json"))["processors"]
        pending: int | None = next(each["dead_letters"] for each in processors if each["processor"] == sums)
        return pending

    rejected_clicks(cli, app, prefix)
    sums, letters = f"{prefix}.sums", cli.folder / "letters.jsonl"

    pending = [reported()]
    shown = cli.ok("dead-letters", "show", sums, "--limit", "3")
    cli.ok("dead-letters", "drop", sums, "--reason", "eve", "--why", "a test user", "--yes")
    pending.append(reported())
    cli.ok("dead-letters", "show", sums, "--to", str(letters))
    correct(app)
    declined = cli("dead-letters", "retry", str(app), "--all", stdin="n\n")
    cli.ok("dead-letters", "retry", str(app), "--all", "--yes")
    cli.ok("dead-letters", "retry", str(app), "--all", "--yes")
    cli.ok("run", str(app), "--until-end")

    assert ("\x1b" in shown, "\\x1b[31mbelow zero" in shown, "in process" in shown) == (False, True, True)
    assert len(letters.read_text().splitlines()) == 2
    assert declined.returncode == 1
    assert [*pending, reported()] == [3, 2, 0]
    assert counts(cli, sums) == (0, 2, 1)
    assert totals(cli, prefix) == {"ann": [1, -2], "bob": [4, 2]}


POSTED = """
import penstock as ps

class Row(ps.Record, frozen=True):
    page: str
    number: int
    at: ps.EventTime

rows = ps.Category("{prefix}.rows", Row, key="page", event_time="at", buckets=1)

class Post(ps.Stateless):
    name, reads, writes = "{prefix}.post", rows, ps.sinks.HttpSink("POST_URL", Row)

    def process(self, event):
        yield event
"""


def test_rows_that_an_endpoint_refuses_are_dropped_or_sent_again(cli: Cli, prefix: str) -> None:
    """Their letters name an endpoint instead of a category."""
    app = cli.folder / "post.py"
    app.write_text(POSTED.replace("{prefix}", prefix))
    with endpoint() as (url, stored, refused):
        cli.environment["POST_URL"] = url
        cli.ok("category", "create", str(app))
        lines = "".join(
            json.dumps({"page": "/", "number": number, "at": 1_700_000_000_000}) + "\n" for number in range(6)
        )
        cli.ok("category", "send", f"{prefix}.rows", "--app", str(app), stdin=lines)
        refused |= {1, 3, 5}
        cli.ok("run", str(app), "--until-end")
        cli.ok("dead-letters", "drop", f"{prefix}.post", "--offset", "0", "--why", "a test", "--yes")
        refused -= {3}
        cli.ok("dead-letters", "retry", str(app), "--all", "--yes")

    assert sorted(stored) == [0, 2, 3, 4]
    assert counts(cli, f"{prefix}.post") == (1, 1, 1)


@contextmanager
def endpoint() -> Iterator[tuple[str, list[int], set[int]]]:
    """Serve an endpoint; yield its address, the numbers that it has stored, and the numbers that it refuses."""
    stored, refused = list[int](), set[int]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            numbers = [row["number"] for row in json.loads(self.rfile.read(int(self.headers["Content-Length"])))]
            is_refused = bool(refused & set(numbers))
            stored.extend([] if is_refused else numbers)
            self.send_response(422 if is_refused else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/rows", stored, refused
        finally:
            server.shutdown()
            thread.join()
