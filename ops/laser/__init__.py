"""Laser: the latest value of each key of a category, over the Redis protocol."""
