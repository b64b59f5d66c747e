"""A deterministic simulation of Penstock; see docs/decisions/0018-simulation.md."""
