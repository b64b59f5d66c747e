"""Where a shard's state is kept: in RocksDB on local disk, or in memory for tests."""
