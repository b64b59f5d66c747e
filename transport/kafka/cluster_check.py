"""What a cluster offers of what Penstock uses. No category is created or changed; the coordinator of transactions knows the identity for some days."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from ..category_spec import CategorySpec
from ..errors import BusError, BusUnreachable, NoTransactions
from ..messages import CERTAINLY_FITS_BYTES
from .bus import KafkaBus
from .new_topics import SAFE_REPLICAS
from .reported_settings import BROKER_MESSAGE_BYTES, POSITION_BYTES, BrokerSettings

NAME = "penstock.doctor"
"""The category whose creation brokers check, and the transactional id without another one."""
_METADATA_BYTES = 4096
"""How much a checkpoint stores with a position at most; Kafka's default limit."""


class Verdict(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"
    UNKNOWN = "unknown"


class Feature(StrEnum):
    """What is checked."""

    BROKERS = "brokers"
    CATEGORIES = "new categories"
    COMPACTION = "compacted categories"
    MESSAGES = "message size"
    POSITIONS = "positions of groups"
    TRANSACTIONS = "transactions"


@dataclass(frozen=True)
class Check:
    """One feature of a cluster.

    Args:
        feature: what was checked.
        verdict: the outcome.
        found: what the brokers answered.
        follows: what that means, and what to change; empty if nothing.
    """

    feature: Feature
    verdict: Verdict
    found: str
    follows: str = ""


def checks_of(bus: KafkaBus, identity: str = NAME) -> Iterator[Check]:
    """Yield a check of each feature, as soon as it is made.

    Args:
        bus: the cluster.
        identity: a transactional id that no running writer uses, and that this user may use.

    Raises:
        BusUnreachable: no broker answers, or it rejects this client.
    """
    cluster = bus.catalog.cluster()
    yield _brokers(bus, cluster.brokers)
    plain = CategorySpec(NAME, 1, timedelta(days=7))
    needs = "Workers create dead letters, and categories of their own. Let the administrators create them, or permit this user to (`penstock acls`)."
    yield _creation(bus, Feature.CATEGORIES, plain, needs)
    needs = "Penstock needs compaction for its own categories and for changelogs: no worker starts. Let the administrators permit cleanup.policy=compact."
    yield _creation(bus, Feature.COMPACTION, CategorySpec(NAME, 1, compacted=True), needs)
    yield _messages(bus, cluster.settings)
    yield _positions(cluster.settings)
    yield _transactions(bus, identity)


def _brokers(bus: KafkaBus, count: int) -> Check:
    found = f"{count} at {bus.settings.bootstrap}"
    if count >= SAFE_REPLICAS:
        return Check(Feature.BROKERS, Verdict.OK, found)
    follows = (
        "The failure of a broker stops the cluster, and may lose acknowledged events. Run three brokers in production."
    )
    return Check(Feature.BROKERS, Verdict.LIMITED, found, follows)


def _creation(bus: KafkaBus, feature: Feature, spec: CategorySpec, needs: str) -> Check:
    try:
        left_out = bus.catalog.try_creation(spec)
    except BusUnreachable:
        raise
    except BusError as error:
        return Check(feature, Verdict.MISSING, str(error), needs)
    if left_out is None:
        return Check(feature, Verdict.OK, "permitted")
    found = f"permitted without {', '.join(sorted(left_out.names))}: {'; '.join(dict.fromkeys(left_out.words))}"
    return Check(feature, Verdict.LIMITED, found, left_out.consequence)


def _messages(bus: KafkaBus, settings: BrokerSettings) -> Check:
    limit = settings.number(BROKER_MESSAGE_BYTES)
    if limit is None:
        follows = "A message that the cluster refuses stops the worker, which names it."
        return Check(Feature.MESSAGES, Verdict.UNKNOWN, settings.why_unknown(BROKER_MESSAGE_BYTES), follows)
    if limit >= bus.settings.batch_limit:
        return Check(Feature.MESSAGES, Verdict.OK, f"{limit:,} bytes")
    follows = f"This client sends batches of up to {bus.settings.batch_limit:,} bytes. Set batch.size = 16384 in [kafka-settings], or raise {BROKER_MESSAGE_BYTES}."
    verdict = Verdict.MISSING if limit < CERTAINLY_FITS_BYTES else Verdict.LIMITED
    return Check(Feature.MESSAGES, verdict, f"{limit:,} bytes", follows)


def _positions(settings: BrokerSettings) -> Check:
    limit = settings.number(POSITION_BYTES)
    if limit is None:
        return Check(Feature.POSITIONS, Verdict.UNKNOWN, settings.why_unknown(POSITION_BYTES))
    if limit >= _METADATA_BYTES:
        return Check(Feature.POSITIONS, Verdict.OK, f"{limit:,} bytes with each")
    follows = f"Checkpoints store up to {_METADATA_BYTES:,} bytes with a position. Set {POSITION_BYTES} of the brokers to that."
    return Check(Feature.POSITIONS, Verdict.MISSING, f"{limit:,} bytes with each", follows)


def _transactions(bus: KafkaBus, identity: str) -> Check:
    try:
        bus.expect_transactions(identity)
    except BusUnreachable:
        raise
    except NoTransactions as error:
        follows = "State and outputs at least once and at most once work; exactly once is refused."
        return Check(Feature.TRANSACTIONS, Verdict.MISSING, str(error).partition(", which outputs")[0], follows)
    except BusError as error:
        return Check(Feature.TRANSACTIONS, Verdict.UNKNOWN, str(error))
    return Check(Feature.TRANSACTIONS, Verdict.OK, "coordinated")
