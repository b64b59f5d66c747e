"""The worker, which runs a processor on the buckets that its consumer group assigns to it."""
