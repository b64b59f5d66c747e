"""An HTTP endpoint as a sink: what is sent, what is repeated, and what each answer means."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.disks import Disk
from support.kinds import Event
from support.mortal import Crash
from support.mortals import Trial
from support.subjects import LEAST, MEMORY, MOST, Subject

import penstock as ps
from penstock.ops.dead_letters.handling import retry
from penstock.ops.dead_letters.letters import LetterState, read_letters
from penstock.ops.kernel import Driver
from penstock.ops.kernel.shards.sink_writers import OpenSink
from penstock.ops.kernel.testing import Killed
from penstock.processors import CallRetry
from penstock.processors.declare import plan_of
from penstock.state.sinks.http_writer import HttpWriter

TOKEN = "s3cret"  # noqa: S105 - of a test


class Row(ps.Record, frozen=True):
    """A row."""

    number: int


class Endpoint:
    """An endpoint on 127.0.0.1 that stores rows and answers with chosen statuses.

    Args:
        port: its port.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://user:{TOKEN}@127.0.0.1:{port}/rows?key={TOKEN}"
        self.bodies: list[list[dict[str, int]]] = []
        self.keys: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[int], int] = lambda _: 204
        self.bad: Callable[[int], bool] = lambda _: False
        self.status_of_bad = 422
        self.retry_after = ""

    @property
    def numbers(self) -> Counter[int]:
        """How often each number arrived."""
        return Counter(row["number"] for body in self.bodies for row in body)


def opening(writer: HttpWriter) -> OpenSink:
    """Return a function that opens any sink as this one."""
    return lambda _: writer


@contextmanager
def serving() -> Iterator[Endpoint]:
    """Serve an endpoint in the block."""
    found: list[Endpoint] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            endpoint = found[0]
            endpoint.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            endpoint.keys.append(self.headers["Idempotency-Key"])
            endpoint.headers.append(dict(self.headers))
            status = endpoint.answer(len(endpoint.bodies))
            if any(endpoint.bad(row["number"]) for row in endpoint.bodies[-1]):
                status = endpoint.status_of_bad
            if not status:
                self.connection.close()
                return
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            if endpoint.retry_after and status in {429, 503}:
                self.send_header("Retry-After", endpoint.retry_after)
            self.end_headers()
            if status >= 400:
                self.wfile.write(b"column number is unknown")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.append(Endpoint(server.server_address[1]))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found[0]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint."""
    with serving() as endpoint:
        yield endpoint


def batch(*numbers: int, semantics: ps.Semantics = LEAST) -> ps.sinks.SinkBatch:
    """Return a batch."""
    return ps.sinks.SinkBatch("it", 0, {"clicks": 5}, [Row(number) for number in numbers], "", semantics)


def writer(endpoint: Endpoint, retry: CallRetry | None = None) -> HttpWriter:
    """Return a writer that sends three rows at a time."""
    return HttpWriter(endpoint.url, None, most_rows=3, limit_s=60.0, retry=retry or CallRetry(60.0))


def test_rows_arrive_in_requests_of_limited_size(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is in a header; equal requests have equal keys, and others do not."""
    monkeypatch.setenv("ENDPOINT", endpoint.url)
    monkeypatch.setenv("ENDPOINT_TOKEN", TOKEN)
    sink = ps.sinks.HttpSink("ENDPOINT", Row, token="ENDPOINT_TOKEN", most_rows=3)  # noqa: S106 - a variable
    opened = sink.open()
    opened.write(batch(1, 2, 3, 4))
    opened.write(batch(1, 2, 3))

    assert endpoint.bodies == [[{"number": 1}, {"number": 2}, {"number": 3}], [{"number": 4}], endpoint.bodies[0]]
    assert endpoint.keys[0] == endpoint.keys[2] != endpoint.keys[1]
    assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {TOKEN}"}
    assert sink.variables == ("ENDPOINT", "ENDPOINT_TOKEN")


@pytest.mark.parametrize("status", [0, 408, 429, 500, 503])
def test_an_interrupted_request_is_repeated_under_its_key(endpoint: Endpoint, status: int) -> None:
    """An endpoint that knows the key can ignore the repetition."""
    endpoint.answer = lambda requests: 200 if requests > 2 else status
    writer(endpoint).write(batch(1))

    assert {headers["Authorization"] for headers in endpoint.headers} == {"Basic dXNlcjpzM2NyZXQ="}
    assert endpoint.numbers == {1: 3}
    assert len(set(endpoint.keys)) == 1


@pytest.mark.parametrize("status", [0, 503])
def test_at_most_once_repeats_no_request(endpoint: Endpoint, status: int) -> None:
    """The rows may have arrived, so the error says that they may be lost."""
    endpoint.answer = lambda _: status
    with pytest.raises(ps.sinks.SinkUnreachable, match=r"1 row may be lost"):
        writer(endpoint).write(batch(1, semantics=MOST))

    assert endpoint.numbers == {1: 1}


def test_an_outage_is_reported_after_retries(endpoint: Endpoint) -> None:
    """The worker returns to its last checkpoint. No message contains a secret."""
    endpoint.answer, clock = lambda _: 503, Steered()
    with pytest.raises(
        ps.sinks.SinkUnreachable, match=r"127.0.0.1:\d+ answered with status 503.*nothing is lost"
    ) as raised:
        writer(endpoint, CallRetry(15.0, clock=lambda: clock.now_s, pause=clock.pause)).write(batch(1))

    assert TOKEN not in str(raised.value)
    assert endpoint.numbers[1] > 1


@pytest.mark.parametrize("status", [302, 401, 404])
def test_a_refused_request_stops_the_worker_with_the_answer(endpoint: Endpoint, status: int) -> None:
    """Rows are not sent to another address, and not repeated."""
    endpoint.answer = lambda _: status
    with pytest.raises(ps.sinks.SinkRefused, match=rf"refuses rows with status {status}.*(unknown|no text)") as raised:
        writer(endpoint).write(batch(1))

    assert TOKEN not in str(raised.value)
    assert endpoint.numbers == {1: 1}


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_refused_rows_are_found_and_the_others_are_stored(endpoint: Endpoint, status: int) -> None:
    """Each stored row is stored once, in order. The refused ones are returned with the answer."""
    endpoint.bad, endpoint.status_of_bad = lambda number: number in {2, 7, 8}, status
    refused = writer(endpoint).write(batch(*range(10)))
    stored = [
        row["number"] for body in endpoint.bodies for row in body if not any(endpoint.bad(r["number"]) for r in body)
    ]

    assert stored == [0, 1, 3, 4, 5, 6, 9]
    assert [each.row for each in refused] == [Row(2), Row(7), Row(8)]
    assert all(f"status {status}" in each.reason and "column number" in each.reason for each in refused)


def test_a_worker_stops_at_a_refused_row_if_declared_so(endpoint: Endpoint) -> None:
    """Under any declaration, it also stops at a hundred refused rows in succession, over several batches."""
    endpoint.bad = lambda number: number < 1_000
    stopping = HttpWriter(endpoint.url, None, most_rows=3, limit_s=60.0, retry=CallRetry(60.0), stops=True)
    with pytest.raises(ps.sinks.SinkRefused, match=r"status 422.*on_refused"):
        stopping.write(batch(1))
    opened = writer(endpoint)
    assert len(opened.write(batch(*range(99)))) == 99
    assert opened.write(batch(1_000)) == []
    assert len(opened.write(batch(*range(99)))) == 99

    with pytest.raises(ps.sinks.SinkRefused, match=r"the last 100 rows of bucket 0.*status 422"):
        opened.write(batch(1))


class Steered:
    """A clock, which only pauses move."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@pytest.mark.parametrize("status", [429, 503])
def test_a_short_retry_after_is_waited_for(endpoint: Endpoint, status: int) -> None:
    """The request is not repeated earlier."""
    clock, moments = Steered(), list[float]()

    def answer(requests: int) -> int:
        moments.append(clock.now_s)
        return status if requests < 2 else 204

    endpoint.answer, endpoint.retry_after = answer, "7"
    retry = CallRetry(15.0, clock=lambda: clock.now_s, pause=clock.pause)
    HttpWriter(endpoint.url, None, most_rows=3, limit_s=60.0, retry=retry).write(batch(1))

    assert moments[1] - moments[0] >= 7


def test_a_long_retry_after_lets_the_worker_wait(endpoint: Endpoint) -> None:
    """Neither rows nor claims reach the endpoint before; a date is understood, and no endpoint stops a worker for more than an hour."""
    clock = Steered()
    retry = CallRetry(15.0, clock=lambda: clock.now_s, pause=clock.pause)
    opened = HttpWriter(endpoint.url, None, most_rows=3, limit_s=60.0, retry=retry)
    endpoint.answer, endpoint.retry_after = lambda _: 429, "600"
    with pytest.raises(ps.sinks.SinkUnreachable, match=r"asks to wait for 600 s"):
        opened.write(batch(1))
    with pytest.raises(ps.sinks.SinkUnreachable, match="Retry-After"):
        opened.claim("it", 0)
    assert len(endpoint.bodies) == 1
    clock.pause(600)
    assert opened.claim("it", 0) == ""
    endpoint.retry_after = "Fri, 31 Dec 2100 23:59:59 GMT"
    with pytest.raises(ps.sinks.SinkUnreachable, match=r"asks to wait for 3,600 s"):
        opened.write(batch(1))


def test_refused_rows_go_to_the_dead_letters_of_the_processor(endpoint: Endpoint) -> None:
    """Each dead letter contains the answer and the row. The events of the other rows are processed."""
    trial = Trial(Subject("stateless", LEAST, LEAST, sink=MEMORY))
    endpoint.bad = lambda number: number % 10 == 3
    opened = HttpWriter(endpoint.url, None, most_rows=100, limit_s=60.0)
    trial.driver.open_sink = opening(opened)
    trial.run()
    [processor] = trial.driver.app.processors
    letters = trial.driver.dead_letters(processor)
    sent = {event.number for event in trial.events}

    assert {json.loads(letter.value or b"")["number"] for letter in letters} == {n for n in sent if endpoint.bad(n)}
    assert all("status 422" in letter.reason for letter in letters)
    stored = {
        row["number"] for body in endpoint.bodies for row in body if not any(endpoint.bad(r["number"]) for r in body)
    }
    assert stored == {number for number in sent if not endpoint.bad(number)}


def refusing(endpoint: Endpoint, semantics: ps.Semantics = LEAST) -> tuple[Driver, type[ps.Stateless]]:
    """Return a driver and a processor whose endpoint has refused the rows 2 and 4 of five."""
    events = ps.Category("events", Event, key="key", event_time="at")
    sink = ps.sinks.HttpSink(endpoint.url, Row)
    process = lambda _, event: [Row(event.number)]  # noqa: E731
    attributes = {"reads": events, "writes": sink, "output_semantics": semantics, "process": process}
    processor = type("Post", (ps.Stateless,), attributes)
    driver = Driver(processor, sinks=[sink])
    endpoint.bad = lambda number: number in {2, 4}
    driver.send(events, [Event("k", number, number) for number in range(5)])
    return driver, processor


def test_refused_rows_are_retried_at_the_endpoint(endpoint: Endpoint) -> None:
    """The endpoint accepts them by then. A row that it refuses again stays pending, and so do all rows while it is down."""
    driver, processor = refusing(endpoint)
    endpoint.bad, endpoint.bodies[:] = lambda number: number == 4, []
    result = retry(driver.bus, processor, lambda _: True)
    assert result.handled == 1
    assert ["refuses the row again" in reason for reason in result.refused] == [True]
    endpoint.bad, endpoint.answer = lambda _: False, lambda _: 401
    result = retry(driver.bus, processor, lambda _: True)
    assert (result.handled, [reason.count("status 401") for reason in result.refused]) == (0, [1])
    endpoint.answer, endpoint.bodies[:] = lambda _: 204, []
    assert retry(driver.bus, processor, lambda _: True).handled == 1

    assert endpoint.bodies == [[{"number": 4}]]
    assert retry(driver.bus, processor, lambda _: True).handled == 0
    assert [letter.state for letter in read_letters(driver.bus, processor.name)] == [LetterState.RETRIED] * 2


def test_a_crash_of_a_retry_repeats_rows_and_loses_none(endpoint: Endpoint) -> None:
    """The repeated rows have the same idempotency key."""
    driver, processor = refusing(endpoint)
    endpoint.bad = lambda _: False
    endpoint.bodies[:], endpoint.keys[:] = [], []

    def crash() -> None:
        raise Killed("killed")

    with pytest.raises(Killed):
        retry(driver.bus, processor, lambda _: True, before_commit=crash)
    assert retry(driver.bus, processor, lambda _: True).handled == 2
    assert endpoint.numbers == {2: 2, 4: 2}
    assert len(set(endpoint.keys)) == 2


def test_rows_at_most_once_are_not_retried(endpoint: Endpoint) -> None:
    """A crash of the command would write them twice."""
    driver, processor = refusing(endpoint, MOST)
    endpoint.bad, endpoint.bodies[:] = lambda _: False, []
    result = retry(driver.bus, processor, lambda _: True)

    assert (result.handled, sum(result.refused.values()), endpoint.bodies) == (0, 2, [])


@pytest.mark.parametrize("semantics", [LEAST, MOST])
def test_rows_have_the_declared_guarantee_whenever_workers_die(
    semantics: ps.Semantics,
) -> None:
    """Workers die in each gap. At least once, the endpoint stores the rows of some requests and does not answer."""
    subject = Subject("stateless", semantics, semantics, sink=MEMORY)
    whole = Trial(subject)
    whole.run()
    moments = whole.driver.moments
    third = len(moments) // 3
    for at in {label: moments.index(label, third) for label in moments[third:] if label.startswith("gap")}.values():
        with serving() as endpoint:
            # At most once, an outage makes the worker wait, and the driver's clock stands still.
            endpoint.answer = lambda requests: 0 if requests % 5 == 3 and semantics is LEAST else 204
            trial = Trial(subject, [Crash(at, Disk.SAME)])
            opened = HttpWriter(endpoint.url, None, most_rows=100, limit_s=60.0, retry=CallRetry(60.0))
            trial.driver.open_sink = opening(opened)
            trial.run()

            assert trial.driver.died
            sent = Counter(event.number for event in trial.events)
            if semantics is LEAST:
                assert not sent - endpoint.numbers
            else:
                assert not endpoint.numbers - sent


def test_a_missing_variable_or_a_foreign_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read."""
    with pytest.raises(ps.sinks.SinkRefused, match=r"environment variable NO_SUCH_ENDPOINT, which is not set"):
        ps.sinks.HttpSink("NO_SUCH_ENDPOINT", Row).open()
    with pytest.raises(ps.sinks.SinkRefused, match=r"not a valid URL of HTTP"):
        ps.sinks.HttpSink("ftp://host/rows", Row).open()
    with pytest.raises(ps.errors.DeclarationError, match=r"greater than zero"):
        ps.sinks.HttpSink("https://host/rows", Row, most_rows=0)
    exactly = type("Exact", (ps.Stateless,), {"process": lambda _, event: [event]})
    exactly.reads = ps.Category("events", Event, key="key", event_time="at")  # type: ignore[attr-defined]
    exactly.writes = ps.sinks.HttpSink("https://host/rows", Event)  # type: ignore[attr-defined]
    exactly.output_semantics = ps.Semantics.EXACTLY_ONCE  # type: ignore[attr-defined]
    with pytest.raises(ps.errors.DeclarationError, match=r"cannot guarantee that.*AT_LEAST_ONCE.*AT_MOST_ONCE"):
        plan_of(exactly).check()


@pytest.mark.parametrize(
    ("sent", "refused"),
    [
        (b"HTTP/1.1 2", None),
        (b"HTTP/1.1 200 OK\r\nX: ", None),
        (b"HTTP/1.1 422 No\r\nContent-Length: 300\r\n\r\n", [Row(1)]),
    ],
)
def test_an_endpoint_that_sends_a_byte_now_and_then_reaches_the_limit(sent: bytes, refused: list[Row] | None) -> None:
    """The limit is for the whole exchange, not for each read of it. A status whose headers have arrived is the answer."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(sent)
                while True:
                    connection.sendall(b"0")
                    time.sleep(0.05)

        dripping = pool.submit(drip)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        opened = HttpWriter(url, None, most_rows=3, limit_s=2.0, retry=CallRetry(0.0))
        if refused is None:
            with pytest.raises(ps.sinks.SinkUnreachable, match=r"no complete answer within 2 s"):
                opened.write(batch(1))
        else:
            assert [row.row for row in opened.write(batch(1))] == refused
        dripping.result(30)
