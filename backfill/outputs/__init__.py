"""Where a batch run writes: folders, the bus, and remote stores."""
