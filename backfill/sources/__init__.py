"""Inputs of a batch run: the archive, earlier outputs, and the bus."""
