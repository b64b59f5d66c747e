"""The bus: categories on Kafka, and in memory for tests."""
