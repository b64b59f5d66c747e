"""Reachability of a Spark master before Spark starts."""

from __future__ import annotations

import socket

import pytest

from penstock.backfill import BackfillRefused
from penstock.backfill.spark import session
from penstock.backfill.spark.prerequisites import expect_reachable, is_local
from penstock.ops.shell import free_port


def test_one_master_of_several_is_enough() -> None:
    """Spark finds the leading master itself."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        expect_reachable(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")


def test_an_unreachable_master_is_refused_at_once() -> None:
    """The error contains the reason."""
    port = free_port()

    with pytest.raises(BackfillRefused, match=rf"127\.0\.0\.1:{port}: Connection refused\)\. Nothing was started"):
        expect_reachable(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "master", ["spark://", "spark://host", "spark://host:port", "spark://:7077", "spark://host:77777"]
)
def test_a_malformed_master_is_refused(master: str) -> None:
    """The error shows the format."""
    with pytest.raises(BackfillRefused, match="spark://HOST:PORT"):
        expect_reachable(master)


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[*]", True), ("local-cluster[2,1,512]", False), ("yarn", False)]
)
def test_only_local_masters_share_files(master: str, local: bool) -> None:
    """Other masters are not contacted by the check."""
    assert is_local(master) is local
    expect_reachable(master)


def test_a_session_that_stops_during_its_start_names_possible_causes() -> None:
    """Spark reports no reason; other reasons are passed on."""
    stopped = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext"

    assert "did not answer as a Spark master within a minute" in session._start_failure(stopped)
    assert session._start_failure("no such host") == "no such host."
