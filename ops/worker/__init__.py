"""A worker: its loop, and all that it needs around it."""
