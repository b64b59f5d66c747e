"""Commands of servers."""
