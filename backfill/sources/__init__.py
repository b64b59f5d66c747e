"""Where a batch run reads: the archive, earlier outputs, and the bus."""
