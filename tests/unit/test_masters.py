"""Whether anybody answers where Spark is to run is found out before it is started."""

from __future__ import annotations

import socket

import pytest
from support.databases import free_port

from penstock.backfill.errors import BackfillRefused
from penstock.backfill.spark import session
from penstock.backfill.spark.masters import expect_answer, is_local


def test_one_master_of_several_is_enough() -> None:
    """As it is for Spark, which finds out which of them leads."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        expect_answer(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    """With why it does not, and nothing started."""
    port = free_port()

    with pytest.raises(BackfillRefused, match=rf"127\.0\.0\.1:{port}: Connection refused\)\. Nothing was started"):
        expect_answer(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "master", ["spark://", "spark://host", "spark://host:port", "spark://:7077", "spark://host:77777"]
)
def test_what_names_no_master_is_refused(master: str) -> None:
    """With how one is named."""
    with pytest.raises(BackfillRefused, match="spark://HOST:PORT"):
        expect_answer(master)


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[*]", True), ("local-cluster[2,1,512]", False), ("yarn", False)]
)
def test_only_this_machines_own_workers_share_its_files(master: str, local: bool) -> None:
    """Others are asked for by Spark itself."""
    assert is_local(master) is local
    expect_answer(master)


def test_a_session_that_stopped_while_it_started_says_what_may_be_behind_it() -> None:
    """Spark tells no more than that it stopped; any other reason is passed on."""
    stopped = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext"

    assert "did not answer as a Spark master within a minute" in session._why_not(stopped)
    assert session._why_not("no such host") == "no such host."
