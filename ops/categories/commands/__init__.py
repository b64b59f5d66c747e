"""Commands of categories."""
