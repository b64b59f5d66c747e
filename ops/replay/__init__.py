"""Replay: a processor over a piece of the past, beside the live one and without side effects."""
