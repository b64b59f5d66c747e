"""The access control lists of Kafka that an app needs: of its workers, of its operators, and of monitoring.

An operation includes Describe where Kafka says so: Read, Write, Delete and Alter do.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from ...backfill.archive import group_of
from ...processors.declare import Processor, dead_letters_of, plan_of
from ...processors.shard import uses_transactions
from ...transport import changelog_spec
from ...transport.tables import SCHEMAS
from ..dead_letters import marks_of
from ..kernel import changelog_of
from ..status import ALERTS
from ..status import GROUP as ALERT_GROUP

_SHARED = "penstock."
"""The prefix of the categories that all processors share: registrations, schemas, watermarks, reports."""

_WITHOUT_GROUP = "penstock-"
"""The prefix of the group names of consumers that are in no group: librdkafka looks up a coordinator for them, too."""


class KafkaRole(StrEnum):
    """Who connects to Kafka.

    WORKER runs processors. OPERATOR uses every command. MONITOR uses `status`, `graph`, `metrics`, `dashboard` and `alerts`.
    """

    WORKER = "worker"
    OPERATOR = "operator"
    MONITOR = "monitor"


class Resource(StrEnum):
    """The type of a resource, as the option of `kafka-acls`."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True)
class Grant:
    """Operations on a resource.

    Args:
        resource: the type of the resource.
        name: its name, or the prefix of names.
        operations: the names of Kafka's operations.
        prefixed: whether `name` is a prefix.
        cluster: the name of its cluster; None for the main one.
    """

    resource: Resource
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False
    cluster: str | None = None

    def command(self, principal: str, bootstrap: str) -> str:
        """Return the command that grants the operations to a principal, for a shell."""
        operations = [part for operation in self.operations for part in ("--operation", operation)]
        pattern = ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        command = ["kafka-acls", "--bootstrap-server", bootstrap, "--command-config", "admin.properties", "--add"]
        return shlex.join(
            [*command, "--allow-principal", principal, *operations, f"--{self.resource.value}", self.name, *pattern]
        )


def grants_of(role: KafkaRole, processors: Iterable[type[Processor]]) -> list[Grant]:
    """Return what a role needs for processors, each resource once."""
    of_processor = {KafkaRole.WORKER: _of_worker, KafkaRole.OPERATOR: _of_operator, KafkaRole.MONITOR: _of_monitor}[
        role
    ]
    operations: dict[Grant, dict[str, None]] = {}
    for grant in (grant for processor in processors for grant in of_processor(processor)):
        resource = replace(grant, operations=())
        operations.setdefault(resource, {}).update(dict.fromkeys(grant.operations))
    return [replace(resource, operations=tuple(needed)) for resource, needed in operations.items()]


def _of_worker(processor: type[Processor]) -> Iterator[Grant]:
    plan = plan_of(processor)
    for category in (*plan.sources, *plan.side_inputs):
        yield Grant(Resource.TOPIC, category.name, ("Read", "DescribeConfigs"))
    for category in plan.outputs:
        # Read: a restarted worker looks for the outputs that it wrote before.
        yield Grant(Resource.TOPIC, category.name, ("Read", "Write", "DescribeConfigs"), cluster=category.cluster)
    yield from _schemas_elsewhere(processor, ("Create", "Read", "Write", "DescribeConfigs"))
    changelog = changelog_of(processor)
    created = [dead_letters_of(processor).name, *([changelog.name] if changelog else [])]
    created += [category.name for category in plan.retry_categories]
    for name in (*created, _SHARED):
        yield Grant(Resource.TOPIC, name, ("Create", "Read", "Write", "DescribeConfigs"), prefixed=name == _SHARED)
    yield Grant(Resource.GROUP, processor.name, ("Read",))
    yield Grant(Resource.GROUP, _WITHOUT_GROUP, ("Describe",), prefixed=True)
    if uses_transactions(processor):
        # The rest of an identity is chosen by each machine.
        yield Grant(Resource.TRANSACTIONAL_ID, f"{processor.name}.", ("Write",), prefixed=True)


def _of_operator(processor: type[Processor]) -> Iterator[Grant]:
    for name in _all(processor):
        yield Grant(Resource.TOPIC, name, ("All",))
        yield Grant(Resource.GROUP, group_of(name), ("All",))
        yield Grant(Resource.TRANSACTIONAL_ID, f"backfill.{name}", ("All",))
    for category in plan_of(processor).outputs:
        if category.cluster is not None:
            yield Grant(Resource.TOPIC, category.name, ("All",), cluster=category.cluster)
    yield from _schemas_elsewhere(processor, ("All",))
    yield Grant(Resource.TOPIC, _SHARED, ("All",), prefixed=True)
    yield Grant(Resource.GROUP, _SHARED, ("All",), prefixed=True)
    yield Grant(Resource.GROUP, _WITHOUT_GROUP, ("Describe",), prefixed=True)
    yield Grant(Resource.GROUP, processor.name, ("All",))
    yield Grant(Resource.TRANSACTIONAL_ID, f"{processor.name}.", ("All",), prefixed=True)


def _of_monitor(processor: type[Processor]) -> Iterator[Grant]:
    for name in _all(processor):
        # Read: the oldest waiting event shows how far behind a processor is.
        yield Grant(Resource.TOPIC, name, ("Read", "DescribeConfigs"))
    yield Grant(Resource.TOPIC, _SHARED, ("Read", "DescribeConfigs"), prefixed=True)
    yield Grant(Resource.TOPIC, ALERTS.name, ("Create", "Read", "Write", "DescribeConfigs"))
    yield Grant(Resource.GROUP, ALERT_GROUP, ("Read",))
    yield Grant(Resource.GROUP, processor.name, ("Describe",))
    yield Grant(Resource.GROUP, _WITHOUT_GROUP, ("Describe",), prefixed=True)


def _schemas_elsewhere(processor: type[Processor], operations: tuple[str, ...]) -> Iterator[Grant]:
    """Yield the access to schemas on the other clusters that a processor writes to. They contain no other category of Penstock."""
    for cluster in {category.cluster: None for category in plan_of(processor).outputs if category.cluster is not None}:
        yield Grant(Resource.TOPIC, SCHEMAS.name, operations, cluster=cluster)
        yield Grant(Resource.GROUP, _WITHOUT_GROUP, ("Describe",), prefixed=True, cluster=cluster)


def _inputs(processor: type[Processor]) -> Iterator[str]:
    plan = plan_of(processor)
    return (category.name for category in (*plan.inputs, *plan.side_inputs))


def _all(processor: type[Processor]) -> Iterator[str]:
    """Yield all categories of a processor on the main cluster. Some may be missing: commands still look for a changelog of its earlier versions."""
    yield from _inputs(processor)
    yield from (category.name for category in plan_of(processor).outputs if category.cluster is None)
    yield from (dead_letters_of(processor).name, marks_of(processor.name).spec.name, changelog_spec(processor).name)
