"""A bus in memory with the behaviour of Kafka: for tests, dry runs and the simulation.

log             one bucket: messages, transaction markers, and the view of readers of committed data
transactions    the transaction coordinator: epochs, open transactions and their time limits
groups          the group coordinator: members, sessions, generations, assignments and committed positions
cluster         the brokers: topics, groups and transactions
network         the requests of a client; a simulation delays, fails or loses them
readers, writers, bus   the clients
"""

from .bus import MemoryBus
from .log import StoredMessage
from .network import Network
from .readers import POLL_LIMIT

__all__ = ["POLL_LIMIT", "MemoryBus", "Network", "StoredMessage"]
