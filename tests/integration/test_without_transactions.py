"""A cluster that cannot coordinate transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from support.cli import Cli
from support.meters import readings

from penstock.ops.start.dev_services.kafka import KafkaService, Listener
from penstock.transport import Bucket, BusUnreachable, CategorySpec, NoTransactions
from penstock.transport.kafka import KafkaBus, KafkaSettings, transactions
from penstock.transport.kafka import bus as kafka_bus


class Owner:
    """A member that ignores its buckets."""

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Do nothing."""

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Do nothing."""

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Do nothing."""


@pytest.fixture(scope="module")
def without_transactions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker whose topic of transactions needs three brokers."""
    kafka = KafkaService(
        tmp_path_factory.mktemp("kafka"), Listener(broker={"transaction.state.log.replication.factor": 3})
    )
    try:
        yield kafka.up(lambda _: None).endpoints["bootstrap"]
    finally:
        kafka.down()


def test_a_running_worker_waits_and_names_the_cause(without_transactions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error blames neither the address nor the protocol of a broker that answers."""
    monkeypatch.setattr(transactions, "STEP_LIMIT_S", 3.0)
    monkeypatch.setattr(transactions, "ASK_LIMIT_S", 60.0)  # a broker that has just started may answer late
    bus = KafkaBus(KafkaSettings(without_transactions))
    bus.catalog.create(CategorySpec("in", 1))
    with closing(bus.reader("totals", ["in"], Owner())) as member:
        monkeypatch.setattr(kafka_bus, "STEP_LIMIT_S", 0.0)
        with pytest.raises(BusUnreachable, match=r"none of them coordinates transactions.*wait.*AT_LEAST_ONCE"):
            bus.transactional_writer("totals.one", member, 11.0, ["out"])


def test_writers_of_commands_are_refused(without_transactions: str) -> None:
    """A producer, a backfill and a retry of dead letters end: their user waits for them."""
    with pytest.raises(NoTransactions, match=r"none of them coordinates transactions.*Nothing was started"):
        KafkaBus(KafkaSettings(without_transactions)).transactional_writer("orders", None, 11.0, ["out"])


def test_exactly_once_is_refused_and_at_least_once_runs(without_transactions: str, app: Path, prefix: str) -> None:
    """The refusal names the reason and the line to write. With that line, the same app runs to the end of its input."""
    source = app.read_text()
    cli = Cli(without_transactions, app.parent)
    cli.ok("category", "create", "app.py")
    cli.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin=readings(50))
    app.write_text(
        source.replace(
            "class Large(ps.Stateless):", "class Large(ps.Stateless):\n    output_semantics = ps.Semantics.EXACTLY_ONCE"
        )
    )
    refused = cli("run", "app.py:Large", "--until-end")
    examined = cli("doctor", "app.py:Large")
    app.write_text(source)
    cli.ok("run", "app.py:Large", "--until-end")
    suited = cli.ok("doctor", "app.py:Large")

    assert refused.returncode == 1
    assert "none of them coordinates transactions" in refused.stderr
    assert "Nothing was started" in refused.stderr
    assert "`output_semantics = ps.Semantics.AT_LEAST_ONCE`" in refused.stderr
    assert cli.ok("category", "tail", f"{prefix}.large", "--from", "0", "--no-follow")
    assert examined.returncode == 1
    assert f"exactly once is refused. It stops {prefix}.large." in examined.stdout
    assert "exactly once is refused." in suited
    assert "It stops" not in suited
