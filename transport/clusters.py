"""One bus of several clusters: the home cluster, and others that contain some of the categories that an app writes.

category --its cluster--> catalog, writer and scanner of that cluster
group, transaction, category of Penstock ------> home cluster
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from typing import TypeVar, final

from ..processors.declare import AnyCategory
from .bus import Bus, Catalog, OwnershipListener, Reader, Scanner, TransactionalWriter, Writer
from .category_spec import CategorySpec, CategoryState, Durability, Topic
from .errors import BusError
from .messages import Bucket, Outgoing, Polled, Position

Placement = Mapping[str, str]
"""The names of clusters by category, without the categories on the home cluster."""
K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


def placement_of(categories: Iterable[AnyCategory]) -> dict[str, str]:
    """Return the clusters that categories declare."""
    return {category.name: category.cluster for category in categories if category.cluster is not None}


def cluster_of(bus: Bus, category: str) -> str | None:
    """Return the name of the cluster that contains a category; None for the home cluster."""
    return bus.cluster_of(category) if isinstance(bus, Clusters) else None


def placed_on(bus: Bus, category: str, cluster: str | None) -> Bus:
    """Return a bus that contains a category on a cluster, such as one of Penstock's own."""
    if cluster is None or not isinstance(bus, Clusters):
        return bus
    return Clusters(bus.home, bus.others, {**bus.placement, category: cluster})


def settings_table(cluster: str | None) -> str:
    """Return the table of the configuration with the client settings of a cluster, for messages."""
    return "[kafka-settings]" if cluster is None else f"[clusters.{cluster}.kafka-settings]"


@final
class Clusters:
    """Several clusters as one bus. Errors of another cluster than the home cluster begin with its name.

    Groups and transactions are on the home cluster. A writer sends each category to its cluster, and its flush waits for all of them.

    Args:
        home: contains groups, inputs, and the categories that Penstock keeps.
        others: further clusters, by name.
        placement: the clusters of categories.
    """

    def __init__(self, home: Bus, others: Mapping[str, Bus], placement: Placement) -> None:
        self._home = home
        self._others = others
        self.placement = placement
        self._catalog = _ClustersCatalog(self)

    @property
    def catalog(self) -> Catalog:
        """The categories of all clusters."""
        return self._catalog

    @property
    def home(self) -> Bus:
        """The home cluster."""
        return self._home

    @property
    def others(self) -> Mapping[str, Bus]:
        """The other clusters, by name."""
        return self._others

    def cluster_of(self, category: str) -> str | None:
        """Return the name of the cluster of a category; None for the home cluster."""
        return self.placement.get(category)

    def cluster(self, name: str | None) -> Bus:
        """Return a cluster by its name; the home cluster without a name."""
        return self._home if name is None else self._others[name]

    def reader(
        self, group: str, categories: Sequence[str], ownership: OwnershipListener, identity: str | None = None
    ) -> Reader:
        """Join a group on the home cluster."""
        return self._home.reader(group, categories, ownership, identity)

    def scanner(self, positions: Sequence[Position]) -> Scanner:
        """Return a reader of buckets of one cluster.

        Raises:
            TypeError: the buckets are on several clusters.
        """
        [name, *more] = {self.cluster_of(position.bucket.category) for position in positions} or {None}
        if more:
            raise TypeError("a scanner reads buckets of one cluster")
        if name is None:
            return self._home.scanner(positions)
        with naming(name):
            return _NamedScanner(name, self._others[name].scanner(positions))

    def writer(self, limit_s: float | None = None) -> Writer:
        """Return a writer to all clusters. It connects to another cluster with the first message for it."""
        return _ClustersWriter(self, limit_s)

    def expect_transactions(self, identity: str) -> None:
        """Check the home cluster, on which all transactions are."""
        self._home.expect_transactions(identity)

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> TransactionalWriter:
        """Return a writer of transactions, which are on the home cluster."""
        at_home = [category for category in writes if self.cluster_of(category) is None]
        return self._home.transactional_writer(identity, member, timeout_s, at_home)


@contextmanager
def naming(cluster: str) -> Iterator[None]:
    """Name a cluster other than the home cluster in the errors of the block."""
    try:
        yield
    except BusError as error:
        text = str(error).replace(settings_table(None), settings_table(cluster))
        raise error.reworded(f"Cluster {cluster}: {text}") from error


class _ClustersWriter:
    """Sends each category to its cluster."""

    def __init__(self, clusters: Clusters, limit_s: float | None) -> None:
        self._clusters = clusters
        self._limit_s = limit_s
        self._home = clusters.home.writer(limit_s)
        self._others: dict[str, Writer] = {}

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages for the cluster of their category."""
        name = self._clusters.cluster_of(category)
        if name is None:
            self._home.send(category, messages)
            return
        with naming(name):
            if name not in self._others:
                self._others[name] = self._clusters.cluster(name).writer(self._limit_s)
            self._others[name].send(category, messages)

    def send_now(self) -> None:
        """Let all clusters' queued messages be sent."""
        self._home.send_now()
        for name, writer in self._others.items():
            with naming(name):
                writer.send_now()

    def flush(self) -> None:
        """Wait until the messages of all clusters are durable."""
        self._home.flush()
        for name, writer in self._others.items():
            with naming(name):
                writer.flush()

    def close(self) -> None:
        """Close the connections to all clusters."""
        with ExitStack() as closing:  # all of them, also after an error
            closing.callback(self._home.close)
            for writer in self._others.values():
                closing.callback(writer.close)


class _NamedScanner:
    """A scanner of another cluster, which its errors name."""

    def __init__(self, cluster: str, scanner: Scanner) -> None:
        self._cluster = cluster
        self._scanner = scanner

    def poll(self, timeout_s: float) -> Polled:
        """Return the next messages."""
        with naming(self._cluster):
            return self._scanner.poll(timeout_s)

    def close(self) -> None:
        """Release all buckets."""
        self._scanner.close()


class _ClustersCatalog:
    """The categories of several clusters; the positions of groups are on the home cluster."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    @contextmanager
    def _at(self, cluster: str | None) -> Iterator[Catalog]:
        """Yield the catalog of a cluster."""
        if cluster is None:
            yield self._home
            return
        with naming(cluster):
            yield self._clusters.cluster(cluster).catalog

    def _of(self, category: str) -> AbstractContextManager[Catalog]:
        """Return the catalog that contains a category, as a context manager."""
        return self._at(self._clusters.cluster_of(category))

    @property
    def _home(self) -> Catalog:
        return self._clusters.home.catalog

    def _merged(
        self,
        items: Iterable[T],
        category_of: Callable[[T], str],
        request: Callable[[Catalog, list[T]], Mapping[K, V]],
    ) -> dict[K, V]:
        """Return the answers of all clusters to requests about their own items."""
        by_cluster: dict[str | None, list[T]] = {}
        for item in items:
            by_cluster.setdefault(self._clusters.cluster_of(category_of(item)), []).append(item)
        found: dict[K, V] = {}
        for cluster in (None, *self._clusters.others):
            if cluster in by_cluster:
                with self._at(cluster) as catalog:
                    found.update(request(catalog, by_cluster[cluster]))
        return found

    def create(self, spec: CategorySpec) -> None:
        """Create a category on its cluster."""
        with self._of(spec.name) as catalog:
            catalog.create(spec)

    def delete(self, name: str) -> None:
        """Delete a category and its events."""
        with self._of(name) as catalog:
            catalog.delete(name)

    def resize(self, name: str, buckets: int) -> None:
        """Raise the number of buckets."""
        with self._of(name) as catalog:
            catalog.resize(name, buckets)

    def names(self) -> list[str]:
        """Return the categories of the home cluster, and the placed categories of the others, each where it belongs."""
        found: list[str] = []
        for cluster in (None, *self._clusters.others):
            with self._at(cluster) as catalog:
                found += [name for name in catalog.names() if self._clusters.cluster_of(name) == cluster]
        return sorted(found)

    def describe(self, name: str) -> CategoryState:
        """Return the present state of a category."""
        with self._of(name) as catalog:
            return catalog.describe(name)

    def describe_all(self, names: Collection[str]) -> dict[str, CategoryState]:
        """Return the present states of categories, without missing ones."""
        return self._merged(names, lambda name: name, lambda catalog, own: catalog.describe_all(own))

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the ids and sizes of categories, without missing ones."""
        return self._merged(names, lambda name: name, lambda catalog, own: catalog.topics(own))

    def durability(self, name: str) -> Durability:
        """Return the replication and timestamp settings of a category."""
        with self._of(name) as catalog:
            return catalog.durability(name)

    def message_limit(self, name: str) -> int:
        """Return the size limit of a message."""
        with self._of(name) as catalog:
            return catalog.message_limit(name)

    def ends(self, name: str) -> Mapping[int, int]:
        """Return the offset after the last event of each bucket, including open transactions."""
        with self._of(name) as catalog:
            return catalog.ends(name)

    def ends_of(self, buckets: Collection[Bucket]) -> Mapping[Bucket, int]:
        """Return the ends of buckets, with one request to each cluster."""
        return self._merged(buckets, lambda bucket: bucket.category, lambda catalog, own: catalog.ends_of(own))

    def stable_ends(self, name: str) -> Mapping[int, int]:
        """Return the end of each bucket for readers."""
        with self._of(name) as catalog:
            return catalog.stable_ends(name)

    def at_time(self, name: str, time: datetime) -> dict[int, int]:
        """Return, by bucket, the offset of the first event that arrived at `time` or later."""
        with self._of(name) as catalog:
            return catalog.at_time(name, time)

    def waiting_since(self, positions: Collection[Position]) -> dict[Position, int]:
        """Return when the first event at or after each position arrived at its cluster."""
        return self._merged(
            positions, lambda position: position.bucket.category, lambda catalog, own: catalog.waiting_since(own)
        )

    def committed(self, group: str, name: str) -> dict[int, int]:
        """Return a group's committed positions in a category, by bucket."""
        return self._home.committed(group, name)

    def committed_of(self, readers: Collection[tuple[str, str]]) -> dict[tuple[str, str], dict[int, int]]:
        """Return the committed positions of several groups, each in a category."""
        return self._home.committed_of(readers)

    def positions(self, group: str, name: str) -> list[Position]:
        """Return a group's committed positions, each with the checkpoint that committed it."""
        return self._home.positions(group, name)

    def set_committed(self, group: str, positions: Sequence[Position]) -> None:
        """Set the positions of a group without members."""
        self._home.set_committed(group, positions)

    def forget_group(self, group: str) -> None:
        """Delete a group without members and all its positions."""
        self._home.forget_group(group)
