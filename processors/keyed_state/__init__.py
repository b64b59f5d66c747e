"""How a shard's state is laid out by key, and how changes to it are expressed."""
