"""Penstock: stream processors on Kafka that also run, unchanged, as Spark batch jobs."""
