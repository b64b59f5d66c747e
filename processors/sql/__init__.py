"""Applications in SQL: statements that become processors."""
