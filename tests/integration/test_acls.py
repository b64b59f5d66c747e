"""Workers run with the printed access rights, on a broker that denies everything else."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support import plain
from support.cli import Cli
from support.secured_kafka import LIMITED, PASSWORD, SecuredKafka, secured_kafka

APP = '''
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: float

def category(name):
    return ps.Category(name, Reading, key="meter", event_time="at", buckets=2)

readings, large, totals = category("readings"), category("large"), category("totals")

class Large(ps.Stateless):
    """Passes on large readings."""
    reads, writes = readings, large
    def process(self, event):
        if event.litres > 1:
            yield event

class Totals(ps.Stateful):
    """Sums each meter, in transactions."""
    reads, writes, state = large, totals, float
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def process(self, event, state, context):
        total = (state or 0.0) + event.litres
        return total, [Reading(event.meter, event.at, total)]
'''
READINGS = [{"meter": f"m{n % 3}", "at": 1_700_000_000_000 + n, "litres": float(n)} for n in range(60)]
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredKafka]:
    """A broker with an authorizer, for one test: the categories have the same names in each."""
    folder = tmp_path / "secured"
    folder.mkdir()
    with secured_kafka(folder, authorizes=True) as kafka:
        yield kafka


@pytest.fixture
def site(secured: SecuredKafka, tmp_path: Path) -> Iterator[Cli]:
    """The command line as the first user, who may do everything, in a folder with an app."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "penstock.toml").write_text(secured.configuration())
    cli = Cli(None, tmp_path)
    cli.environment |= {"KAFKA_PASSWORD": PASSWORD}
    yield cli
    cli.end_all()


@contextmanager
def limited(cli: Cli, secured: SecuredKafka) -> Iterator[None]:
    """Connect as the user without rights of its own in the block."""
    file = cli.folder / "penstock.toml"
    file.write_text(secured.configuration(sasl_username=LIMITED))
    yield
    file.write_text(secured.configuration())


def printed(cli: Cli, role: str) -> list[str]:
    """Return the commands that give the limited user the rights of a role."""
    lines = cli.ok("acls", "app.py", f"--{role}", f"User:{LIMITED}").splitlines()
    return [line for line in lines if f"User:{LIMITED} " in line]


def bindings(command: str) -> list[AclBinding]:
    """Return the access rights that a printed command grants; an unknown option fails."""
    parser = argparse.ArgumentParser()
    for name in ("--bootstrap-server", "--command-config", "--allow-principal", "--resource-pattern-type"):
        parser.add_argument(name)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append", required=True)
    kinds = parser.add_mutually_exclusive_group(required=True)
    for name in ("--topic", "--group", "--transactional-id"):
        kinds.add_argument(name)
    program, *arguments = shlex.split(command)
    assert program == "kafka-acls"
    found = parser.parse_args(arguments)
    [(kind, name)] = [(_TYPES[kind], value) for kind in _TYPES if (value := getattr(found, kind)) is not None]
    pattern = ResourcePatternType.PREFIXED if found.resource_pattern_type == "prefixed" else ResourcePatternType.LITERAL
    operations = [
        AclOperation["DESCRIBE_CONFIGS" if each == "DescribeConfigs" else each.upper()] for each in found.operation
    ]
    return [
        AclBinding(kind, name, pattern, found.allow_principal, "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]


def replace_grants(secured: SecuredKafka, commands: list[str]) -> None:
    """Grant exactly what the commands grant."""
    admin = AdminClient({"bootstrap.servers": secured.bootstrap, **secured.client()})
    anything: Any = None  # the client's types lack it
    everything = AclBindingFilter(
        ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
    )
    for deleted in admin.delete_acls([everything]).values():
        deleted.result(30)
    for created in admin.create_acls([each for command in commands for each in bindings(command)]).values():
        created.result(30)


def _kind(command: str) -> str:
    """Return the option of a printed command that names the kind of resource."""
    return next(word for word in ("--topic", "--group", "--transactional-id") if word in command)


def test_workers_run_with_exactly_the_printed_rights(site: Cli, secured: SecuredKafka) -> None:
    """The processors are stateless and transactional. An error names the topic, group or transactions that lack a right."""
    site.ok("category", "create", "app.py")
    site.ok("category", "send", "readings", "--app", "app.py", stdin="\n".join(map(json.dumps, READINGS)))
    commands = printed(site, "worker")
    with limited(site, secured):
        for missing in {_kind(command): command for command in commands}.values():
            replace_grants(secured, [command for command in commands if command != missing])
            refused = site("run", "app.py", "--until-end")
            words = shlex.split(missing.removesuffix(" --resource-pattern-type prefixed"))
            assert refused.returncode == 1, missing
            assert words[-1] in refused.stderr or words[-2] == "--group", refused.stderr
        replace_grants(secured, commands)
        site.ok("run", "app.py", "--until-end")
    plain.read(secured.bootstrap, "totals", secured.client())  # waits for the markers of the last transaction
    lines = site.ok("category", "tail", "totals", "--from", "0", "--no-follow", "--json").splitlines()
    totals = [json.loads(line)["value"] for line in lines]

    assert max(total["litres"] for total in totals if total["meter"] == "m0") == sum(range(3, 60, 3))


@pytest.mark.exhaustive
def test_operators_and_monitoring_have_the_printed_rights(site: Cli, secured: SecuredKafka) -> None:
    """An operator creates, runs, resets, resizes and deletes; monitoring sees the same figures, and changes nothing."""
    replace_grants(secured, printed(site, "operator"))
    with limited(site, secured):
        site.ok("category", "create", "app.py")
        site.ok("category", "send", "readings", "--app", "app.py", stdin="\n".join(map(json.dumps, READINGS)))
        site.ok("run", "app.py", "--until-end")
        site.ok("reset", "app.py:Large", "--to", "0=0,1=0", "--yes")
    seen = figures(site)
    replace_grants(secured, printed(site, "monitor"))
    with limited(site, secured):
        assert figures(site) == seen
        assert "[large]  stopped, backlog 60 events" in site.ok("status", "--graph", "text")
        evaluating = site.start("alerts", "run", "--every", "1")
        assert evaluating.stderr is not None
        while "evaluates the alerts" not in evaluating.stderr.readline():
            assert evaluating.poll() is None
        refused = site("category", "delete", "totals", "--yes")
        assert refused.returncode == 1
        assert "totals" in refused.stderr
    replace_grants(secured, printed(site, "operator"))
    with limited(site, secured):
        site.ok("category", "resize", "totals", "3", "--stateless")
        for name in ("readings", "large", "totals"):
            site.ok("category", "delete", name, "--yes")

    assert [(name, backlog) for name, _, backlog in seen] == [("large", len(READINGS)), ("totals", 0)]


def figures(cli: Cli) -> list[tuple[str, str, int | None]]:
    """Return the name, state and backlog of each processor."""
    processors = json.loads(cli.ok("status", "--json"))["processors"]
    return sorted((each["processor"], each["state"], each["backlog_events"]) for each in processors)
