"""A bus in memory that behaves as Kafka does: for tests, trials and the simulation.

log            a bucket: messages, the marks of transactions, what readers of committed data find
transactions   who writes under a transactional id, what is open, what ran out of time
groups         members, sessions, generations, assignments, committed positions
cluster        all of these together: what a broker knows
line           the way between a client and the cluster, where a simulation lets requests be slow, fail or be lost
reading, writing, bus   the clients: what they keep for themselves, and when they ask the cluster
"""

from .bus import MemoryBus
from .log import StoredMessage
from .network import Network
from .readers import POLL_LIMIT

__all__ = ["POLL_LIMIT", "MemoryBus", "Network", "StoredMessage"]
