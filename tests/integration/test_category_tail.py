"""`penstock category tail` with its filters, and the notes of `category show`, on a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.cli import Cli

from penstock.transport import CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus, KafkaSettings

VALUES: list[dict[str, Any]] = [{"n": n, "amount": n * 10, "city": ("Kiel", "Ulm")[n % 2]} for n in range(12)]


@pytest.fixture
def orders(cli: Cli, kafka: str, prefix: str) -> str:
    """A category with records, one text, and a tombstone; each message has a header."""
    name = f"{prefix}.orders"
    cli.ok("category", "create", name, "--buckets", "2")
    writer = KafkaBus(KafkaSettings(kafka)).writer()
    messages = [
        Outgoing(b"k%d" % (one["n"] % 3), json.dumps(one).encode(), one["n"] % 2, [("source", b"test\x1b[31m")])
        for one in VALUES
    ]
    writer.send(
        name, [*messages, Outgoing(b"k1", b'{"n": 12, "amount": "many"}', 0, None), Outgoing(b"k1", None, 0, None)]
    )
    writer.flush()
    writer.close()
    return name


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        (("--where", "amount > 50 AND city = 'Kiel'"), lambda one: one["amount"] > 50 and one["city"] == "Kiel"),
        (("--bucket", "1"), lambda one: one["n"] % 2 == 1),
        (("--key", "k2", "--where", "n < 9"), lambda one: one["n"] % 3 == 2 and one["n"] < 9),
    ],
    ids=["where", "bucket", "key and where"],
)
def test_only_matching_records_are_shown(cli: Cli, orders: str, options: tuple[str, ...], holds: Any) -> None:
    """Records equal the result of the filter in Python. Records of other types do not match, and are counted."""
    done = cli("category", "tail", orders, "--from", "0", "--no-follow", "--json", *options)
    found = [json.loads(line)["value"]["n"] for line in done.stdout.splitlines()]

    assert sorted(found) == [one["n"] for one in VALUES if holds(one)]
    assert ("does not fit the types of the fields of 1 record of 14" in done.stderr) == ("amount" in str(options))


def test_a_filter_without_a_match_says_so(cli: Cli, orders: str) -> None:
    """The note has the number of records that were compared."""
    done = cli("category", "tail", orders, "--from", "0", "--no-follow", "--key", "nobody")

    assert (done.returncode, done.stdout) == (0, "")
    assert "No record was shown; 14 records read." in done.stderr
    assert "None has a value" not in done.stderr


def test_a_misspelled_field_is_named(cli: Cli, orders: str) -> None:
    """No record has it, so it is not silently NULL."""
    done = cli("category", "tail", orders, "--from", "0", "--no-follow", "--where", "amuont > 100")

    assert (
        "No record was shown; 14 records read. None has a value in amuont: check the names in --where." in done.stderr
    )


def test_a_start_without_records_says_so(cli: Cli, orders: str) -> None:
    """The start is the end by default, or a position that the category has not reached."""
    without_start = cli("category", "tail", orders, "--no-follow")
    behind_end = cli("category", "tail", orders, "--no-follow", "--from", "9999")

    assert f"without --from, this begins at the end of {orders}. Add `--from 0`" in without_start.stderr
    assert f"No record was read: {orders} has none from 9999 on." in behind_end.stderr


def test_headers_are_shown_without_their_control_characters(cli: Cli, orders: str) -> None:
    """They are escaped in JSON, too."""
    shown = cli.ok("category", "tail", orders, "--from", "0", "--limit", "1", "--headers")
    in_json = json.loads(cli.ok("category", "tail", orders, "--from", "0", "--limit", "1", "--headers", "--json"))

    assert "test\\x1b[31m" in shown
    assert in_json["headers"] == {"source": "test\x1b[31m"}


def test_wrong_filters_are_explained(cli: Cli, orders: str) -> None:
    """The error comes before any record is shown."""
    condition = cli("category", "tail", orders, "--where", "amount >")
    bucket = cli("category", "tail", orders, "--bucket", "7")

    assert "--where, line 1" in condition.stderr
    assert "has no bucket 7" in bucket.stderr
    assert not any("Traceback" in done.stderr for done in (condition, bucket))


def test_the_timestamps_of_producers_are_a_note_of_the_description(
    cli: Cli, kafka_bus: KafkaBus, orders: str, prefix: str
) -> None:
    """A category with the broker's timestamps has no such note. A worker does not warn about it at each start."""
    app, name = cli.folder / "app.py", f"{prefix}.foreign"
    app.write_text(
        "import penstock as ps\n"
        "class Order(ps.Record, frozen=True):\n    key: str\n    at: ps.EventTime\n"
        f"orders = ps.Category({name!r}, Order, key='key', event_time='at', buckets=1)\n"
        f"class Seen(ps.Stateless):\n    name, reads = '{prefix}.seen', orders\n    def process(self, event): return []\n"
    )
    kafka_bus.catalog.create(CategorySpec(name, 1, settings={"message.timestamp.type": "CreateTime"}))
    foreign, own = cli("category", "show", name), cli("category", "show", orders)
    created, run = cli("category", "create", str(app)), cli("run", str(app), "--until-end")
    words = "come from its producers"

    assert run.returncode == 0, run.stderr
    assert [words in each.stderr for each in (foreign, own, created, run)] == [True, False, True, False]
