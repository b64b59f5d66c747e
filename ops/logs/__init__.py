"""Log lines of a process, as text or as JSON."""
