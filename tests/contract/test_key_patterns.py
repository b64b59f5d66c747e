"""Patterns of SCAN, beside a real Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.databases import Redis

from penstock.ops.serve.latest.key_patterns import MOST_PATTERN_BYTES, KeyPattern

BYTES = [
    b"a",
    b"b",
    b"-",
    b"^",
    b"!",
    b"\\",
    b"[",
    b"]",
    b"*",
    b"?",
    b"z",
    "ключ".encode()[:1],
    b"\n",
    b"\x00",
    b"\xff",
]
PATTERNS = st.lists(st.sampled_from(BYTES), max_size=12).map(b"".join)
KEYS = st.lists(st.sampled_from(BYTES), min_size=1, max_size=6).map(b"".join)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a Redis server."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    try:
        with server.session() as session:
            yield session
    finally:
        with suppress(OSError):
            server.stop()


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.sets(KEYS, min_size=1, max_size=8))
@example(b"a[\xff-a", {b"ab", b"aa", b"a\xff", b"a\xfe"})
def test_a_pattern_matches_the_keys_that_redis_matches(client: Any, pattern: bytes, keys: set[bytes]) -> None:
    """Patterns may have unclosed and empty classes, reversed ranges, and escapes. Matching is byte by byte."""
    client.flushdb()
    client.mset(dict.fromkeys(keys, b"v"))

    assert set(filter(KeyPattern(pattern).matches, keys)) == set(client.keys(pattern))


@pytest.mark.parametrize("repeated", [b"*a", b"?", b"[^b]", b"[a-z]*", b"a"])
def test_no_pattern_takes_much_longer_than_another(repeated: bytes) -> None:
    """A key that almost matches a pattern in many ways takes no more time than others."""
    key = b"a" * 20_000

    def cpu_s(pattern: bytes) -> float:
        begin_s = time.process_time()
        KeyPattern(pattern).matches(key)
        return time.process_time() - begin_s

    hostile = repeated * (MOST_PATTERN_BYTES // len(repeated) - 1) + b"c"

    assert min(cpu_s(hostile) for _ in range(3)) < 20 * min(cpu_s(b"a*") for _ in range(3)) + 0.02
