"""Comparison of stream and batch results."""
