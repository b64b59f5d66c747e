"""A bus in memory with the behaviour of Kafka: for tests, dry runs and the simulation.

log             one bucket: messages, transaction markers, and the view of readers of committed data
transactions    the transaction coordinator: epochs, open transactions and their time limits
groups          the group coordinator: members, sessions, generations, assignments and committed positions
cluster         the brokers: topics, groups and transactions
network         the requests of a client; a simulation delays, fails or loses them
readers, writers, bus   the clients
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
