"""Categories on a bus: Kafka, or one in memory with the same manners."""
