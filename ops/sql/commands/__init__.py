"""Commands of SQL."""
