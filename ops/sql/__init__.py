"""Tools for SQL files: explanations, and tests with example rows."""
