"""What users write, and the pure core that runs it: no Kafka, no RocksDB, no Spark in here."""
