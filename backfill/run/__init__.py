"""Batch runs: plan, execute, bootstrap, hand over to the stream."""
