"""Access rights in Kafka."""
