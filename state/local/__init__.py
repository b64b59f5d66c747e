"""State on this machine's disk, in RocksDB."""
