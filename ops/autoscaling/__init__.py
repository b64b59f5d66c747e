"""Decisions about the number of a processor's workers, from its load."""
