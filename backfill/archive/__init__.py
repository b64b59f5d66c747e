"""The archiver, which copies categories from the bus into the warehouse."""
