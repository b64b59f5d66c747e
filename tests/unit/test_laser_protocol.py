"""Requests of the Redis protocol, from bytes in any pieces."""

from __future__ import annotations

import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from support.laser_site import redis_server, wait_for
from support.secured_kafka import certificate

from penstock.ops.http import Certificate
from penstock.ops.serve.latest.daily_pairs import DailyPairs
from penstock.ops.serve.latest.days import DailyTable
from penstock.ops.serve.latest.resp import ProtocolError, RequestReader
from penstock.ops.serve.latest.server import Limits
from penstock.state.files import LocalFileStore

WORDS = st.one_of(st.binary(max_size=20), st.lists(st.sampled_from([b"\r\n", b"$3", b"*1", b"a"])).map(b"".join))


def encoded(words: Sequence[bytes]) -> bytes:
    """Return a request as a client sends it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), max_size=5), st.lists(st.integers(0, 200), max_size=6))
def test_requests_are_parsed_in_any_pieces(requests: list[list[bytes]], cuts: list[int]) -> None:
    """Each is parsed as soon as its last byte arrives. Words may contain any bytes."""
    sent = b"*0\r\n".join(map(encoded, requests))
    reader, found = RequestReader(1 << 20), list[Sequence[bytes]]()
    edges = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    for start, end in pairwise(edges):
        found += reader.feed(sent[start:end])

    assert found == requests
    assert reader.unparsed_bytes == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /v1/values HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        b'GET "a b"\r\n',
        b"\x16\x03\x01\x02",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n$x\r\nPING\r\n",
        b"*1\r\n$5\r\nPING\r\n*1\r\n",
        b"*2\r\n$3\r\nGET\r\n$-1\r\n",
        b"*\xc2\xb2\r\n",
        b"*1\r\n" + b"$" + b"1" * 40,
        b"*1000000000\r\n",
    ],
)
def test_other_bytes_are_refused(sent: bytes) -> None:
    """They are refused before memory is allocated for the announced size."""
    with pytest.raises(ProtocolError):
        list(RequestReader(1 << 20).feed(sent))


def cpu_s(sent: bytes, piece_bytes: int) -> float:
    """Return the least processor time of this thread in which a reader accepts bytes that arrive in pieces."""

    def once() -> float:
        reader, begin_s = RequestReader(1 << 22), time.thread_time()
        for start in range(0, len(sent), piece_bytes):
            for _ in reader.feed(sent[start : start + piece_bytes]):
                pass
        return time.thread_time() - begin_s

    return min(once() for _ in range(5))


@pytest.mark.parametrize(
    ("begin", "repeated", "piece_bytes"),
    [
        (b"*2\r\n$3\r\nGET\r\n$2000000\r\n", b"x" * 16, 16),
        (b"*160000\r\n$2\r\n\r\n\r\n", b"$0\r\n\r\n", 8),
        (b"GET ", b"x" * 16, 16),
        (b"", b"*1\r\n$2\r\n\r\n\r\n", 1 << 18),
        (b"", b"*1\r\n$1000\r\n" + b"\r\n" * 501, 1 << 18),
    ],
)
def test_a_byte_costs_the_same_in_a_large_request(begin: bytes, repeated: bytes, piece_bytes: int) -> None:
    """A slow client without a password could otherwise use all of the server's processor time."""
    small, large = (begin + repeated * (size // len(repeated)) for size in (1 << 15, 1 << 18))

    assert cpu_s(large, piece_bytes) < 24 * cpu_s(small, piece_bytes) + 0.01


def test_only_an_authenticated_client_may_send_large_requests(tmp_path: Path) -> None:
    """The limit is lifted for the first request after AUTH, also in the same pipeline."""
    token, many = b"0123456789abcdef", encoded([b"MGET", *[b"k"] * 5_000])
    with closing(daily_pairs(tmp_path, {"k": "v"})) as pairs, redis_server("t", pairs, token=token) as port:
        found = [
            received_from(port, sent)
            for sent in (
                many,
                encoded([b"GET", b"x" * 20_000]),
                b"GET " + b"x" * 20_000,
                encoded([b"AUTH", token]) + many + encoded([b"QUIT"]),
            )
        ]

    assert found[0] == b"-ERR Protocol error: a request has 5001 words, more than 10; authenticate first, with AUTH\r\n"
    assert (
        found[1]
        == found[2]
        == b"-ERR Protocol error: a request has more than 16384 bytes; authenticate first, with AUTH\r\n"
    )
    assert found[3] == b"+OK\r\n*5000\r\n" + b"$1\r\nv\r\n" * 5_000 + b"+OK\r\n"


def test_clients_without_the_token_keep_no_other_client_out(tmp_path: Path) -> None:
    """Their connections end soon, and earlier if a further client connects, whatever they send."""
    limits, token = Limits(connections=20, guest_s=2.0, request_s=60.0), b"0123456789abcdef"
    with closing(daily_pairs(tmp_path, {"k": "v"})) as pairs, ExitStack() as stack:
        port = stack.enter_context(redis_server("t", pairs, limits=limits, token=token))
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(50)]
        strangers[-1].sendall(b"PING\r\n*2\r\n$3\r\nGET\r\n")
        client = stack.enter_context(closing(redis.Redis("127.0.0.1", port, password=token.decode())))

        assert client.get("k") == b"v"
        assert strangers[0].recv(100) == b"-ERR max number of clients reached\r\n"
        assert strangers[-1].recv(100).startswith(b"-NOAUTH")
        assert strangers[-1].recv(100) == b""
        assert client.get("k") == b"v"


def received_from(port: int, sent: bytes) -> bytes:
    """Send bytes; return what the server answers until it ends the connection."""
    found = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        with suppress(ConnectionError):  # the server may end the connection before it has received all bytes
            while received := client.recv(1 << 16):
                found += received
    return bytes(found)


def test_a_request_may_be_a_line() -> None:
    """People with netcat and health checks send lines; empty ones are skipped."""
    reader = RequestReader(1 << 20)
    found = list(reader.feed(b"PING\r\n\r\n\nGET  k1\n*1\r\n$4\r\nQUIT\r\nGE"))

    assert found == [[b"PING"], [b"GET", b"k1"], [b"QUIT"]]
    assert list(reader.feed(b"T k2\r\n")) == [[b"GET", b"k2"]]


def daily_pairs(folder: Path, values: dict[str, str]) -> DailyPairs:
    """Return the started pairs of a day."""
    day = folder / "w" / "ds=2026-11-01"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"key": list(values), "value": list(values.values())}), day / "0.parquet")
    (day / "_SUCCESS").touch()
    pairs = DailyPairs(DailyTable("t", LocalFileStore(folder / "w"), ("key",), ("value",)), folder / "s")
    pairs.start()
    wait_for(lambda: pairs.is_complete)
    return pairs


@contextmanager
def client_of(folder: Path, values: dict[str, str], **options: Any) -> Iterator[redis.Redis]:
    """Serve a day; yield a client of it."""
    with (
        closing(daily_pairs(folder, values)) as pairs,
        redis_server("t", pairs) as port,
        closing(redis.Redis("127.0.0.1", port, decode_responses=True, **options)) as client,
    ):
        yield client


def test_strangers_and_crowds_disturb_no_client(tmp_path: Path) -> None:
    """They announce gigabytes, leave requests unfinished and replies unread, and open too many connections."""
    limits = Limits(connections=20, request_s=1.0)
    with closing(daily_pairs(tmp_path, {"k": "v", "big": "x" * 4_000_000})) as pairs, ExitStack() as stack:
        counting = _Counting(pairs)
        port = stack.enter_context(redis_server("t", counting, limits=limits))
        client = stack.enter_context(closing(redis.Redis("127.0.0.1", port, decode_responses=True)))
        assert client.get("k") == "v"
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(3)]
        slow[0].sendall(b"*1000000000\r\n")
        slow[1].sendall(encoded([b"GET", b"k"]) + b"*2\r\n$3\r\nGET\r\n")
        slow[2].sendall(encoded([b"GET", b"big"]) * 50)  # and reads none of the 200 MB
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(300)]
        wait_for(lambda: len(select.select(crowd, [], [], 0)[0]) >= 280)
        assert all(b"max number of clients" in each.recv(100) for each in select.select(crowd, [], [], 0)[0])
        assert client.get("k") == "v"

        assert b"Protocol error" in slow[0].recv(100)
        assert (slow[1].recv(100), slow[1].recv(100)) == (b"$1\r\nv\r\n", b"")
        assert counting.large < 20
        for connection in crowd:
            connection.close()
        wait_for(lambda: _answers(port))


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_pipeline_is_answered_in_its_order(tmp_path: Path, has_tls: bool) -> None:
    """Values may exceed buffers, and the lag comes from another thread. Invalid bytes end the connection after the earlier answers."""
    big = b"x" * 300_000
    with closing(daily_pairs(tmp_path, {"k": "v", "big": big.decode()})) as pairs, ExitStack() as stack:
        authority = certificate(tmp_path) if has_tls else None
        tls = None if authority is None else Certificate(authority, tmp_path / "key.pem").context()
        port = stack.enter_context(redis_server("t", pairs, tls=tls))
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        if authority is not None:
            trusting = ssl.create_default_context(cafile=authority)
            client = stack.enter_context(trusting.wrap_socket(client, server_hostname="127.0.0.1"))
        requests = [[b"GET", b"k"], *[[b"GET", b"big"]] * 20, [b"PENSTOCK.LAG"], [b"MGET", b"k", b"none"]]
        client.sendall(b"".join(map(encoded, requests)) * 3 + b"*1\r\n$x\r\n")
        found = bytearray()
        while received := client.recv(1 << 16):
            found += received

    value = b"$300000\r\n%b\r\n" % big
    one = b"$1\r\nv\r\n" + value * 20 + b":0\r\n*2\r\n$1\r\nv\r\n$-1\r\n"
    assert found == one * 3 + b"-ERR Protocol error: expected a number of bytes or words\r\n"


def test_clients_introduce_themselves_and_ask_for_types(tmp_path: Path) -> None:
    """Clients send a name, ask for the type and lifetime of a key, and scan keys of a type."""
    with client_of(tmp_path, {"k": "v"}, client_name="shop") as client:
        assert (client.get("k"), client.type("k"), client.type("none")) == ("v", "string", "none")
        assert (client.pttl("k"), client.pttl("none"), client.echo("x")) == (-1, -2, "x")
        assert (list(client.scan_iter(_type="string")), list(client.scan_iter(_type="hash"))) == (["k"], [])
        transaction = client.pipeline()
        transaction.get("k")
        with pytest.raises(redis.ResponseError, match="transaction=False"):
            transaction.execute()

        assert client.get("k") == "v"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ["EWR:UA", "a*b", r"a\:b:c", "axb"]),
        (r"a\\:*", [r"a\:b:c"]),
        (r"a\*b", ["a*b"]),
        (r"E\WR:??", ["EWR:UA"]),
        ("[^Ea]*", []),
        ("a[^*]b", ["axb"]),
    ],
)
def test_patterns_are_those_of_redis(tmp_path: Path, pattern: str, found: list[str]) -> None:
    """A backslash escapes, as keys of several columns need it."""
    keys = dict.fromkeys(["EWR:UA", "a*b", r"a\:b:c", "axb"], "v")
    with client_of(tmp_path, keys) as client:
        assert sorted(client.scan_iter(match=pattern, count=100)) == found


@pytest.mark.parametrize(
    "request_",
    [
        ["SCAN", "1" * 5_000],
        ["SCAN", "0", "COUNT", "1" * 5_000],
        ["SCAN", "0", "COUNT", "0"],
        ["HELLO", "3", "AUTH", "only-one-word"],
        ["HELLO", "3", "SETNAME"],
        ["HELLO", "2", "OTHER", "x"],
        ["CLIENT", "KILL", "x"],
        ["ECHO"],
        ["SCAN", "0", "MATCH", "?" * 1_025],
    ],
)
def test_a_bad_request_ends_no_connection(tmp_path: Path, request_: list[str]) -> None:
    """It is answered with an error, and the next one as usual."""
    with closing(daily_pairs(tmp_path, {"k": "v"})) as pairs, ExitStack() as stack:
        port = stack.enter_context(redis_server("t", pairs))
        request = encoded([word.encode() for word in request_])
        found = received_from(port, request + encoded([b"GET", b"k"]) + encoded([b"QUIT"]))

    assert found.startswith(b"-ERR ")
    assert found.endswith(b"\r\n$1\r\nv\r\n+OK\r\n")


class _Counting:
    """Pairs that count the requests for the large value."""

    def __init__(self, pairs: DailyPairs) -> None:
        self._pairs = pairs
        self.large = 0

    def fetch(self, keys: Any) -> Any:
        self.large += b"big" in keys
        return self._pairs.fetch(keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pairs, name)


def _answers(port: int) -> bool:
    with closing(redis.Redis("127.0.0.1", port)) as client:
        try:
            return bool(client.get("k") == b"v")
        except redis.ConnectionError:
            time.sleep(0.05)
            return False


def test_a_server_may_open_as_many_files_as_the_system_allows() -> None:
    """Supervisors often start processes with a limit of 1,024, which connections would use up before the database."""
    program = (
        "import resource; from penstock.ops.http.listening import allow_open_files; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1_000)); allow_open_files(); print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    assert found.stdout == "(1000, 1000)\n"
