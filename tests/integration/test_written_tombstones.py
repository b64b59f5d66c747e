"""Tombstones of real workers on Kafka, read by a plain client."""

from __future__ import annotations

from collections import defaultdict

import pytest
from support import plain
from support.cli import Cli

APP = """
import penstock as ps

class Login(ps.Record, frozen=True):
    user: int
    at: ps.EventTime

class Active(Login, frozen=True):
    logins: int

logins = ps.Category("{prefix}.logins", Login, key="user", event_time="at", buckets=2)
active = ps.Category(
    "{prefix}.active", Active, key="user", event_time="at", buckets=3, compacted=True, codec="{codec}",
    key_codec=ps.KeyCodec.INT64, partitioner=ps.Partitioner.CONSISTENT,
)

class Activity(ps.Stateful):
    name = "{prefix}.activity"
    reads, writes, state = logins, active, int
    state_semantics = ps.Semantics.{state}
    output_semantics = ps.Semantics.{semantics}

    def process(self, event, state, context):
        count = (state or 0) + 1
        if count % 3:
            return count, [Active(event.user, event.at, count)]
        return count, [ps.Tombstone(context.key)]
"""

USERS, LOGINS = 20, 6


@pytest.mark.parametrize(
    ("semantics", "codec"), [("AT_LEAST_ONCE", "json"), ("AT_MOST_ONCE", "json"), ("EXACTLY_ONCE", "avro")]
)
def test_a_plain_client_reads_the_keys_and_null_values(
    cli: Cli, kafka: str, prefix: str, semantics: str, codec: str
) -> None:
    """Keys have the declared codec and partition, and each key keeps its order, with each output semantics."""
    state = "AT_MOST_ONCE" if semantics == "AT_MOST_ONCE" else "EXACTLY_ONCE"
    text = APP
    for name, replaced in (("prefix", prefix), ("semantics", semantics), ("codec", codec), ("state", state)):
        text = text.replace("{" + name + "}", replaced)
    (cli.folder / "app.py").write_text(text)
    cli.ok("category", "create", "app.py")
    lines = "".join(f'{{"user": {n % USERS}, "at": {1_700_000_000_000 + n}}}\n' for n in range(USERS * LOGINS))
    (cli.folder / "logins.jsonl").write_text(lines)
    cli.ok("category", "send", f"{prefix}.logins", "--app", "app.py", "logins.jsonl")

    cli.ok("run", "app.py:Activity", "--until-end")

    found: defaultdict[bytes | None, list[tuple[int, bool]]] = defaultdict(list)
    for number, key, value in plain.messages(kafka, f"{prefix}.active"):
        found[key].append((number, value is None))
    assert set(found) == {user.to_bytes(8, "big") for user in range(USERS)}
    for of_key in found.values():
        assert [deletes for _, deletes in of_key] == [login % 3 == 0 for login in range(1, LOGINS + 1)]
        assert len({number for number, _ in of_key}) == 1
    assert len({number for of_key in found.values() for number, _ in of_key}) == 3


def test_a_command_writes_tombstones_for_keys(cli: Cli, kafka: str, prefix: str) -> None:
    """A processor writes the same. A key that does not fit is refused, and nothing is written."""
    text = APP
    for name, replaced in (
        ("prefix", prefix),
        ("semantics", "EXACTLY_ONCE"),
        ("codec", "json"),
        ("state", "EXACTLY_ONCE"),
    ):
        text = text.replace("{" + name + "}", replaced)
    (cli.folder / "app.py").write_text(text)
    cli.ok("category", "create", "app.py")
    send = ("category", "send", f"{prefix}.active", "--app", "app.py", "--tombstones")
    refusals = [cli(*send, stdin=keys) for keys in ("7\nx7\n", "7\n\n8\n")]
    cli.ok(*send, stdin="7\n8\n")

    assert [refused.returncode for refused in refusals] == [1, 1]
    assert "x7" in refusals[0].stderr
    assert "Line 2 is empty" in refusals[1].stderr
    written = plain.messages(kafka, f"{prefix}.active")
    assert sorted((key, value) for _, key, value in written) == [(n.to_bytes(8, "big"), None) for n in (7, 8)]
