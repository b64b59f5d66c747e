"""Outputs of a batch run: folders and the bus."""
