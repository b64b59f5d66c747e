"""From the bus into the warehouse."""
