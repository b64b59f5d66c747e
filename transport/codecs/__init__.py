"""Codecs: records to bytes and back."""
