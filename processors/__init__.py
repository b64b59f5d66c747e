"""What users write, and the pure core that runs it: no Kafka, no RocksDB, no Spark in here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
